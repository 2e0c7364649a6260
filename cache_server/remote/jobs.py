"""The job records that a cache service keeps."""

from __future__ import annotations

from collections.abc import Iterator

from cache_server.errors import UnavailableError
from cache_server.names import check_job
from cache_server.remote.problems import Answer, refusal
from cache_server.remote.service import Service


class RemoteShelf:
    """Job records of one namespace, as `cache_server.jobs.shelf.JobShelf` has them."""

    def __init__(self, service: Service, namespace: str) -> None:
        self._service = service
        self._base = f"/namespaces/{namespace}/jobs"

    def put(self, job: str, part: str, data: bytes) -> None:
        self._service.ask("PUT", f"{self._path(job)}/{part}", data, check=self._done)

    def names(self) -> list[str]:
        return self._service.ask("GET", self._base, check=lambda answer: self._names(answer, "jobs"))

    def records(self, job: str) -> Iterator[tuple[str, bytes]]:
        path = self._path(job)
        for part in self._service.ask("GET", path, check=lambda answer: self._names(answer, "parts")):
            data = self._service.ask("GET", f"{path}/{part}", check=self._content)
            if data is not None:
                yield part, data

    def remove(self, job: str, part: str) -> None:
        self._service.ask("DELETE", f"{self._path(job)}/{part}", check=self._done)

    def _path(self, job: str) -> str:
        return f"{self._base}/{check_job(job)}"

    def _done(self, answer: Answer) -> None:
        if answer.status not in (200, 201, 204):
            raise refusal(self._service.url, answer)

    def _content(self, answer: Answer) -> bytes | None:
        if answer.slug == "not-found":
            return None
        self._done(answer)
        return answer.body

    def _names(self, answer: Answer, field: str) -> list[str]:
        from cache_server.jobs.shelf import check_part

        self._done(answer)
        names = answer.document().get(field)
        try:
            if not isinstance(names, list):
                raise ValueError("no list")
            # They become parts of paths.
            return [check_part(name) for name in names]
        except (ValueError, TypeError) as error:
            raise UnavailableError(f"the cache service's answer does not name {field}: {error}") from None
