"""The server answers this computer only, by its own name, with its own files."""

import http.client
import socket
from collections.abc import Iterator

import pytest

from hyperwrap.errors import UserError
from hyperwrap.view.server import File, Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving({"/": File(b"<p>hello</p>", "text/html"), "/page.data": File(b"\0\1")}) as server:
        yield server


def asked(
    server: Server, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    connection.putrequest(method, path, skip_host=True)
    for name in [] if host == "" else [host or f"127.0.0.1:{server.server_port}"]:
        connection.putheader("Host", name)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return found


def test_its_files_are_served(server: Server):
    status, body, headers = asked(server, "/")
    assert (status, body, headers["Content-Type"]) == (200, b"<p>hello</p>", "text/html")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert asked(server, "/page.data?x=1")[:2] == (200, b"\0\1")
    assert asked(server, "/", "HEAD")[:2] == (200, b"")
    assert asked(server, "/", host=f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/../page.py", "/page.html", "/%2e%2e/", "/page.data/"]
)
def test_nothing_else_is(server: Server, path: str):
    assert asked(server, path)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "", "127.0.0.1:80"])
def test_a_request_by_another_name_is_refused(server: Server, host: str):
    status, body, _ = asked(server, "/", host=host)
    assert status == 421
    assert b"hello" not in body


def test_two_names_are_refused(server: Server):
    with socket.create_connection(("127.0.0.1", server.server_port), 5) as connection:
        own = f"127.0.0.1:{server.server_port}"
        connection.sendall(f"GET / HTTP/1.0\r\nHost: evil\r\nHost: {own}\r\n\r\n".encode())
        assert b" 421 " in connection.recv(100)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_only_reads(server: Server, method: str):
    assert asked(server, "/", method)[0] == 501


def test_only_this_computer_is_listened_to(server: Server):
    assert server.server_address[0] == "127.0.0.1"


def test_a_port_in_use(server: Server):
    with pytest.raises(UserError, match=rf"Expected a free port; {server.server_port} cannot be"):
        Server({}, server.server_port)
