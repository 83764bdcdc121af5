"""Parts of sources that read text logs: `files`, `lines`, `fields` in these, `stories` of jobs; and the frame."""
