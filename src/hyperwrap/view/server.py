"""A page served to this computer only."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import NamedTuple

from hyperwrap.errors import UserError

__all__ = ["File", "Server", "serving"]


class File(NamedTuple):
    """What is sent for a path."""

    content: bytes
    kind: str = "application/octet-stream"


class Server(ThreadingHTTPServer):
    """Serves these files on 127.0.0.1 and nothing else.

    A page of another site can make a browser ask this address for it, by a name of its own that
    points here. So a request must name this very host.

    Args:
        files: by path, ``/`` first of all.
        port: 0 for any that is free.
    """

    daemon_threads = True

    def __init__(self, files: Mapping[str, File], port: int = 0) -> None:
        self.files = dict(files)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise UserError(
                f"Expected a free port; {port} cannot be used ({error.strerror or error}). "
                "Choose another one."
            ) from None
        self.hosts = {f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def wait(self) -> None:
        """Until somebody interrupts."""
        Event().wait()


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version, sys_version = "hyperwrap", ""

    def do_GET(self) -> None:
        content = self._head()
        if content is not None:
            self.wfile.write(content)

    def do_HEAD(self) -> None:
        self._head()

    def _head(self) -> bytes | None:
        """Sends the headers; the content is returned if there is one to send."""
        if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return None
        found = self.server.files.get(self.path.partition("?")[0])
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", found.kind)
        self.send_header("Content-Length", str(len(found.content)))
        self.end_headers()
        return found.content

    def end_headers(self) -> None:
        for name, value in _ALWAYS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


_ALWAYS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@contextmanager
def serving(files: Mapping[str, File], port: int = 0) -> Iterator[Server]:
    """The server at work in a thread of its own; it stops at the end."""
    with Server(files, port) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
