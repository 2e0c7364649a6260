"""Which collaborators a service gets, from its settings: the one place that knows them all."""

from __future__ import annotations

from cache_server.service.context import Context
from cache_server.service.identity import IdentityGate
from cache_server.service.keeping import keep
from cache_server.service.settings import ServiceSettings
from cache_server.service.tracing import open_tracing
from cache_server.trust.audit import AuditLog
from cache_server.trust.certificates import CertificateRules
from cache_server.trust.principal import Scope
from cache_server.trust.signatures import Trust
from cache_server.trust.tokens import TokenBook


def assemble(settings: ServiceSettings) -> Context:
    """The context of a service. Raises CacheError for settings that cannot work. Touches no network."""
    context = Context(settings)
    context.tracing = open_tracing()
    context.trust = Trust.of(trusted_keys=None, required=False, signing_key=settings.signing_key)
    context.audit = AuditLog(settings.audit_log)
    context.gate = _gate(context)
    keep(context)
    return context


def _gate(context: Context) -> IdentityGate:
    settings, book = context.settings, TokenBook(context.backend)
    certificates = None
    if settings.client_scopes is not None:
        certificates = CertificateRules.load(settings.client_scopes)
    elif settings.client_scope is not None:
        certificates = CertificateRules.everybody(Scope.named(settings.client_scope))
    return IdentityGate(
        book,
        context,
        anonymous=Scope.named(settings.anonymous_scope),
        unless_tokens=settings.anonymous is None,
        certificates=certificates,
    )
