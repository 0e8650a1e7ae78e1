"""Opens the admin API of a node, if the cluster file asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logdevice_py.config.admin import AdminSettings, admin_endpoint, admin_settings
from logdevice_py.config.permits import parse_grantees
from logdevice_py.config.security import parse_security
from logdevice_py.core.ids import NodeId
from logdevice_py.core.principal import Principal
from logdevice_py.runtime.transport import bind
from server.node_view import AdminApi, AdminView
from server.permissions import is_administrator
from server.security import open_security

if TYPE_CHECKING:
    from logdevice_py.runtime.http.security import HttpSecurity


async def open_admin(node: AdminView) -> AdminApi | None:
    """The admin API, listening; None: the node has none."""
    endpoint = admin_endpoint(node.config, node.config.nodes[node.node_id])
    if endpoint is None:
        return None
    from server.admin.listener import AdminListener, read_token  # takes a while that nodes without it need not spend

    settings = admin_settings(node.config)
    security = _security_of(node, settings)
    token = read_token(node.path, settings, endpoint, proves=security.permissions)
    admin = AdminListener(node, settings, endpoint, token, security)
    await admin.listen_on(bind(endpoint.host, endpoint.port))
    return admin


def _security_of(node: AdminView, settings: AdminSettings) -> HttpSecurity:
    """As at the node's own port. With permissions, administrators of the newest cluster file are administrators here too."""
    from logdevice_py.runtime.http.security import HttpSecurity

    security = parse_security(node.config.settings)
    contexts, check_token = open_security(node.path, node.config, node.node_id)
    readers = parse_grantees(settings.readers)

    def may_do_everything(principal: Principal) -> bool:
        return security.permissions and is_administrator(principal, node.config)

    def may_read(principal: Principal) -> bool:
        return not readers.isdisjoint(principal.grantees)

    def is_member(other: NodeId) -> bool:
        return other in node.config.nodes

    return HttpSecurity(
        security.tls, contexts, security.permissions, check_token, may_do_everything, may_read, is_member
    )
