"""The gate remembers tokens, but not for long, and asks the store no more often than it must."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import pytest
from starlette.requests import HTTPConnection

from cache_server.backends.memory import MemoryBackend
from cache_server.errors import StoreError
from cache_server.service.errors import ProblemError
from cache_server.service.identity import IdentityGate
from cache_server.service.tls import CERTIFICATE_NAMES
from cache_server.trust.certificates import CertificateRules
from cache_server.trust.principal import Principal, Scope
from cache_server.trust.throttle import FailureLimit
from cache_server.trust.tokens import Token, TokenBook, TokenRecord

P = ParamSpec("P")
R = TypeVar("R")


class Workers:
    """Runs work at once, and counts it; `down` is what the store says when it does not answer."""

    def __init__(self) -> None:
        self.calls = 0
        self.down: StoreError | None = None

    async def call(self, act: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        self.calls += 1
        await asyncio.sleep(0)
        if self.down is not None:
            raise self.down
        return act(*args, **kwargs)

    def spawn(self, name: str, work: Callable[[], object]) -> None:
        work()


class World:
    """A gate over a store in memory, with a clock that stands still."""

    def __init__(self, name: str, **options: Any) -> None:
        self.book = TokenBook(MemoryBackend(f"memory://{name}"))
        self.workers = Workers()
        self.now = 1000.0
        options = {"anonymous": Scope.NONE, **options}
        self.gate = IdentityGate(self.book, self.workers, clock=lambda: self.now, monotonic=lambda: self.now, **options)

    def token(self, scope: Scope = Scope.READ) -> tuple[Token, TokenRecord]:
        return self.book.create("x", scope, None, now=self.now, created_by="me")

    def ask(
        self, token: Token | None = None, *, peer: str = "peer", names: tuple[str, ...] = (), **headers: str
    ) -> Any:
        if token is not None:
            headers["authorization"] = f"Bearer {token.reveal()}"
        scope = {
            "type": "http",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
            "client": (peer, 1),
        }
        if names:
            scope[CERTIFICATE_NAMES] = names
        return self.gate.admit(HTTPConnection(scope))


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    return World(request.node.name)


def run(work: Coroutine[Any, Any, Principal]) -> Principal:
    return asyncio.run(work)


def refused(work: Coroutine[Any, Any, Principal]) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        run(work)
    return caught.value


def test_token_is_looked_up_once_for_a_crowd_and_then_remembered(world: World) -> None:
    token, record = world.token()

    async def crowd() -> list[Principal]:
        return await asyncio.gather(*(world.ask(token) for _ in range(100)))

    assert set(asyncio.run(crowd())) == {record.principal}
    assert run(world.ask(token)) == record.principal
    assert world.workers.calls == 1


def test_revocation_is_heeded_after_two_seconds(world: World) -> None:
    token, record = world.token()
    run(world.ask(token))
    world.book.revoke(record.token_id, now=world.now)
    world.now += 1.9
    run(world.ask(token))
    world.now += 0.2
    assert "revoked" in refused(world.ask(token)).message


def test_token_that_expires_while_it_is_remembered_ends_at_that_moment(world: World) -> None:
    token, _ = world.book.create("x", Scope.READ, None, now=0.0, created_by="me", expires_at=1001.0)
    run(world.ask(token))
    world.now = 1001.0
    assert "expired" in refused(world.ask(token)).message


def test_known_token_outlives_a_short_outage_of_the_store_and_not_a_long_one(world: World) -> None:
    token, record = world.token()
    run(world.ask(token))
    world.workers.down = StoreError("the store is away")
    world.now += 59.0
    assert run(world.ask(token)) == record.principal
    world.now += 2.0
    with pytest.raises(StoreError):
        run(world.ask(token))
    with pytest.raises(StoreError):
        run(world.ask(world.token()[0]))


def test_token_that_was_unknown_is_known_soon_after_it_was_made(world: World) -> None:
    token, record = world.token()
    path = f"tokens/{record.token_id}.json"
    data = world.book._backend.read(path, 10_000)
    assert data is not None
    assert world.book._backend.remove_if(path, data)
    refused(world.ask(token))
    world.book._backend.create(path, data)
    world.now += 2.0
    assert run(world.ask(token)) == record.principal


def test_guessing_the_secret_of_a_known_token_is_limited_and_costs_no_lookup(world: World) -> None:
    token, record = world.token()
    run(world.ask(token))
    calls = world.workers.calls
    for _ in range(50):
        guess = Token(record.token_id, "0" * 64)
        assert refused(world.ask(guess, peer="bad")).slug == "unauthorized"
    assert world.workers.calls == calls
    other = Token.mint()
    assert refused(world.ask(other, peer="bad")).slug == "busy"
    assert world.workers.calls == calls
    assert run(world.ask(token, peer="bad")) == record.principal


def test_memory_of_tokens_is_bounded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cache_server.service.identity._KNOWN", 100)
    world = World(request.node.name, limit=FailureLimit(burst=10**6))

    async def strangers() -> None:
        for _ in range(150):
            with pytest.raises(ProblemError):
                await world.ask(Token.mint())

    asyncio.run(strangers())
    assert len(world.gate._known) == 100


def test_certificate_counts_only_where_rules_say_so(request: pytest.FixtureRequest) -> None:
    names = ("trainer",)
    assert run(World(request.node.name).ask(names=names)).scope is Scope.NONE
    rules = CertificateRules.everybody(Scope.WRITE)
    assert run(World(request.node.name, certificates=rules).ask(names=names)) == Principal("cert:trainer", Scope.WRITE)


def test_certificate_without_a_rule_is_as_good_as_none_but_named(request: pytest.FixtureRequest) -> None:
    world = World(request.node.name, certificates=CertificateRules(()), anonymous=Scope.READ)
    assert run(world.ask(names=("stranger",))) == Principal("cert:stranger", Scope.READ)


def test_wrong_token_is_not_saved_by_the_anonymous_scope(request: pytest.FixtureRequest) -> None:
    world = World(request.node.name, anonymous=Scope.WRITE)
    assert refused(world.ask(Token.mint())).slug == "unauthorized"
    assert run(world.ask()).scope is Scope.WRITE


def test_trial_on_loopback_ends_with_the_first_token_even_a_revoked_one(request: pytest.FixtureRequest) -> None:
    world = World(request.node.name, anonymous=Scope.WRITE, unless_tokens=True)
    assert run(world.ask()).scope is Scope.WRITE
    for header in ("forwarded", "x_forwarded_for", "via"):
        assert run(world.ask(**{header: "203.0.113.9"})).scope is Scope.NONE
    _, record = world.token()
    world.book.revoke(record.token_id, now=world.now)
    world.now += 2.0
    assert run(world.ask()).scope is Scope.NONE
