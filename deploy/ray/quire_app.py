"""Quire as an application of Ray Serve: each replica starts a `quire serve` on its node, and passes requests and answers on.

    cd deploy/ray && QUIRE_MODEL=smollm2 QUIRE_REPLICAS=3 QUIRE_CPUS=8 serve run quire_app:app

The API is then at http://127.0.0.1:8000/v1. QUIRE_FLAGS: further flags of `quire serve`. Needs `ray[serve]` and aiohttp, and quire on
every node (`pip install quire` or a package).
"""

import os
import re
import shlex
import subprocess

import aiohttp
from ray import serve
from starlette.responses import StreamingResponse

CPUS = int(os.environ.get("QUIRE_CPUS", "4"))
PASSED_ON = ("authorization", "content-type", "x-api-key", "x-request-id")


@serve.deployment(
    num_replicas=int(os.environ.get("QUIRE_REPLICAS", "1")),
    ray_actor_options={"num_cpus": CPUS},
    max_ongoing_requests=256,  # Quire queues and batches
    health_check_period_s=5,
    graceful_shutdown_timeout_s=60,
)
class Quire:
    def __init__(self, program, model, flags):
        command = [program, "serve", "-m", model, "--host", "127.0.0.1", "--port", "0", "-t", str(CPUS), *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        address = re.search(r"http://[^/\s]+", self.process.stdout.readline())  # printed once the model is loaded
        if not address:
            raise RuntimeError(f"quire serve has ended with code {self.process.wait()}; the replica's stderr says why")
        self.address, self.session = address.group(), None

    async def __call__(self, request):
        self.session = self.session or aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        url = f"{self.address}{request.url.path}" + (f"?{request.url.query}" if request.url.query else "")
        headers = {name: value for name, value in request.headers.items() if name in PASSED_ON}
        answer = await self.session.request(request.method, url, data=await request.body(), headers=headers)
        return StreamingResponse(self.pieces(answer), answer.status, {"X-Request-Id": answer.headers["X-Request-Id"]}, answer.content_type)

    @staticmethod
    async def pieces(answer):
        async with answer:  # a client that leaves ends the request
            async for piece in answer.content.iter_any():
                yield piece

    def check_health(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"quire serve has ended with code {self.process.returncode}")

    def __del__(self):
        self.process.terminate()  # running answers finish
        self.process.wait()


app = Quire.bind(os.environ.get("QUIRE", "quire"), os.environ.get("QUIRE_MODEL", "smollm2"), shlex.split(os.environ.get("QUIRE_FLAGS", "")))
