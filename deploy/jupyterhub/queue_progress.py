"""JupyterHub: show on the spawn page when the batch job of a server starts.

Put this file next to jupyterhub_config.py; README.md describes how. It needs only the package queuecast-client.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from queuecast import HttpClient, UserError

TIMEOUT_S = 5.0  # timeout of a query; without an answer no message is shown


class QueueProgress:
    """Mixin for a spawner class whose `job_id` is the scheduler's, such as those of batchspawner."""

    queuecast_url = "http://127.0.0.1:6067"
    queuecast_token: str | None = None
    queuecast_site = ""
    queuecast_pause_s = 15.0

    job_id: str

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield a message whenever the expected start of the job changes.

        JupyterHub ends the iteration when the server is ready.
        """
        client = HttpClient(self.queuecast_url, self.queuecast_token, timeout_s=TIMEOUT_S)
        last = None
        while True:
            text = await asyncio.to_thread(self._state_text, client) if self.job_id else None
            if text not in (None, last):
                last = text
                yield {"message": f"Job {self.job_id} {text}"}
            await asyncio.sleep(self.queuecast_pause_s)

    def _state_text(self, client: HttpClient) -> str | None:
        try:
            answer = client.job(self.job_id, [self.queuecast_site])[self.queuecast_site]
        except UserError:  # the site has not received its submission yet, or no worker answers
            return None
        return None if answer is None else answer.text
