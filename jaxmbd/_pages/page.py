"""A page: one file that opens without a network, saved, served, or shown in a notebook."""

import abc
import html
import http.server
import pathlib
import threading
import webbrowser


class AbstractPage(abc.ABC):
    """A page for the browser. **Fields:** `html`: the page as text."""

    html: str
    _server: http.server.ThreadingHTTPServer | None = None

    @abc.abstractmethod
    def __str__(self) -> str:
        """What the page shows, and its size."""

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Write the page as one file, which opens without a network, and return its path.

        **Raises:** `ValueError` for a folder that is not there, and for another ending than
        .html."""
        path = pathlib.Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"Argument `path` must end in .html, but is {str(path)!r}.")
        if not path.parent.is_dir():
            raise ValueError(
                "Argument `path` must lie in a folder that is there, but "
                f"{str(path.parent)!r} is none."
            )
        path.write_text(self.html, encoding="utf-8")
        return path

    def serve(self, port: int = 0) -> str:
        """Serve the page to this machine and return its address. `port` 0 takes a free one."""
        if self._server is None:
            data = self.html.encode()

            class Handler(http.server.BaseHTTPRequestHandler):
                def do_GET(self):
                    self.send_response(200)
                    self.send_header("Content-Type", "text/html; charset=utf-8")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

                def log_message(self, format, *args):
                    del format, args

            self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
            threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def show(self, port: int = 0) -> str:
        """Serve the page, open it in the browser, and return its address. It is served until
        `close`, or until Python ends."""
        address = self.serve(port)
        webbrowser.open(address)
        return address

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _repr_html_(self) -> str:
        content = html.escape(self.html, quote=True)
        return (
            f'<iframe srcdoc="{content}" style="width:100%;height:560px;border:0" '
            'allow="fullscreen"></iframe>'
        )
