"""Opens the admin API of a node, if the cluster file asks for one."""

from __future__ import annotations

from logdevice_py.config.admin import admin_endpoint, admin_settings
from logdevice_py.runtime.transport import bind
from server.node_view import AdminApi, AdminView


async def open_admin(node: AdminView) -> AdminApi | None:
    """The admin API, listening; None: the node has none."""
    endpoint = admin_endpoint(node.config, node.config.nodes[node.node_id])
    if endpoint is None:
        return None
    from server.admin.listener import AdminListener, read_token  # takes a while that nodes without it need not spend

    settings = admin_settings(node.config)
    admin = AdminListener(node, settings, endpoint, read_token(node.path, settings, endpoint))
    await admin.listen_on(bind(endpoint.host, endpoint.port))
    return admin
