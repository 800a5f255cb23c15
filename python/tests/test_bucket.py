"""Buckets of small objects, from a server on this machine."""

from __future__ import annotations

import contextlib
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import script

import feedline


class Bucket:
    """What a bucket holds, and how often it was listed and read."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.lists: list[str] = []
        self.reads: list[str] = []


@contextlib.contextmanager
def served(objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Serves ``s3://bucket`` as S3 does, in one page."""
    bucket = Bucket(objects)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            place = urllib.parse.urlsplit(self.path)
            query = urllib.parse.parse_qs(place.query)
            if "list-type" in query:
                bucket.lists.append(query.get("delimiter", [""])[0])
                return self.answer(200, listed(query["prefix"][0], "delimiter" in query))
            key = urllib.parse.unquote(place.path).removeprefix("/bucket/")
            bucket.reads.append(key)
            if key not in bucket.objects:
                return self.answer(404, b"")
            body = bucket.objects[key]
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            part = body[int(first) : int(last) + 1]
            span = f"bytes {first}-{int(first) + len(part) - 1}/{len(body)}"
            return self.answer(206, part, {"Content-Range": span, "ETag": f'"{hash(body)}"'})

        def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    def listed(prefix: str, is_flat: bool) -> bytes:
        names = [name for name in sorted(bucket.objects) if name.startswith(prefix)]
        folders = sorted({name[: name.index("/", len(prefix)) + 1] for name in names if "/" in name[len(prefix) :]})
        if is_flat:
            names = [name for name in names if "/" not in name[len(prefix) :]]
        objects = "".join(
            f"<Contents><Key>{name}</Key><LastModified>2026-07-06T10:00:00.000Z</LastModified>"
            f'<ETag>"{hash(bucket.objects[name])}"</ETag><Size>{len(bucket.objects[name])}</Size></Contents>'
            for name in names
        )
        inside = "".join(f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in folders * is_flat)
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{objects}{inside}</ListBucketResult>".encode()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    for name, value in {"ALLOW_HTTP": "true", "REGION": "r", "SKIP_SIGNATURE": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    try:
        yield bucket
    finally:
        server.shutdown()
        server.server_close()


def pictures() -> dict[str, bytes]:
    """Three pictures in two classes."""
    from page_files import bitmap_bytes

    return {f"pictures/{name}.bmp": bitmap_bytes(blue) for blue, name in enumerate(("ant/1", "ant/2", "bee/1"))}


@pytest.mark.parametrize("decode", ["cpu", "auto"])
def test_a_bucket_is_listed_once(decode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    crop = [feedline.transforms.CenterCrop(8)]
    with served(pictures(), monkeypatch) as bucket:
        data = feedline.images("s3://bucket/pictures/", crop, decode=decode)
        assert bucket.lists == ["/", ""], "the folders, and the objects"
        assert data.classes == ["ant", "bee"] and [int(row["label"]) for row in data] == [0, 0, 1]
        with feedline.Loader(data, 3, framework="numpy") as loader:
            (batch,) = loader
        assert batch["image"][:, 2, 0, 0].tolist() == [0, 1, 2] and bucket.lists == ["/", ""]


def test_a_list_is_kept_for_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEEDLINE_CACHE", str(tmp_path))
    crop = [feedline.transforms.CenterCrop(8)]
    with served(pictures(), monkeypatch) as bucket:
        first = feedline.images("s3://bucket/pictures/", crop, listing_age=3600)
        lists = len(bucket.lists)
        again = feedline.images("s3://bucket/pictures/", crop, listing_age=3600)
        files = feedline.open("s3://bucket/pictures/", listing_age=3600)
        assert (len(bucket.lists), again.fingerprint, len(files)) == (lists, first.fingerprint, 3)
        del bucket.objects["pictures/ant/2.bmp"]
        with pytest.raises(feedline.DataError, match="listing_age="):
            files[1]  # The others hold it already, from their fingerprints.
        assert len(feedline.images("s3://bucket/pictures/", crop, listing_age=3600)) == 2
        assert len(bucket.lists) == 2 * lists
    with pytest.raises(feedline.ConfigError, match="listing_age"):
        feedline.open("s3://bucket/pictures/", listing_age=-1)


def test_a_machine_without_certificates_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    done = script("import feedline; feedline.open('s3://bucket/rows.parquet')")
    assert done.returncode == 1
    assert "no certificates of authorities: install the package ca-certificates" in done.stderr
