"""Parts of sources that read text logs: `files`, `lines`, `fields` in these, `lifecycles` of jobs; and the frame."""
