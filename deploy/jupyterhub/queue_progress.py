"""JupyterHub: whoever waits for a server that is a batch job is told when that starts, on the page of the spawn.

To be put beside jupyterhub_config.py; README.md there says how. It needs the package queuecast-client alone.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from queuecast import HttpClient, UserError

TIMEOUT_S = 5.0  # for how long the service is waited for; without an answer nothing is said


class QueueProgress:
    """A part of a spawner's class whose `job_id` is the scheduler's, such as those of batchspawner."""

    queuecast_url = "http://127.0.0.1:6067"
    queuecast_token: str | None = None
    queuecast_site = ""
    queuecast_pause_s = 15.0

    job_id: str

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """When the job starts, each time that this is another; JupyterHub ends it when the server is there."""
        client = HttpClient(self.queuecast_url, self.queuecast_token, timeout_s=TIMEOUT_S)
        said = None
        while True:
            text = await asyncio.to_thread(self._said, client) if self.job_id else None
            if text not in (None, said):
                said = text
                yield {"message": f"Job {self.job_id} {text}"}
            await asyncio.sleep(self.queuecast_pause_s)

    def _said(self, client: HttpClient) -> str | None:
        try:
            answer = client.job(self.job_id, [self.queuecast_site])[self.queuecast_site]
        except UserError:  # its submission has not come there yet, or nobody answers
            return None
        return None if answer is None else answer.text
