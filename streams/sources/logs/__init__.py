"""Parts of sources that read text logs: `log_files`, `lines`, `fields` in these, `lifecycles`; and the frame."""
