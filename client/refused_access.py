"""What a client says when it may not do something: who it is taken for, which permission it lacks, and where that is granted."""

from __future__ import annotations

from typing import Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import USER_LOG_ID_MAX, LogId
from logdevice_py.core.principal import ANONYMOUS, Permission
from logdevice_py.shell.proof import Principals

_DOES: Final = {
    Permission.APPEND: "append to",
    Permission.READ: "read",
    Permission.TRIM: "trim",
    Permission.ADMIN: "administer",
}


def access_text(principals: Principals, config: ClusterConfig, log: LogId, permission: Permission | None) -> str:
    """Why a node refuses something with ACCESS.

    Args:
        principals: of the client.
        permission: that is needed; None: any.
    """
    who = f"principal {principals.own}" if principals.own else "this client"
    if log > USER_LOG_ID_MAX:
        return f'{who} may not {_DOES[permission or Permission.READ]} internal log {log}: it takes "admin:{principals.own}" in the attribute permit of [defaults]'
    name = config.log_name(log)
    which = f"log {log}" if name == str(log) else f"log {log} ({name})"
    shows = (
        "; this client shows no certificate or token of a principal of this cluster: LOGDEVICE_IDENTITY names one"
        * (principals.own == ANONYMOUS.name)
    )
    grant = f"{permission.value if permission else 'read'}:{principals.own or 'NAME'}"
    if permission is None:
        return (
            f'{who} has no permission for {which}: its attribute permit grants nothing to it, such as "{grant}"{shows}'
        )
    return f'{who} may not {_DOES[permission]} {which}: it has no permission {permission.value} ("{grant}" in its attribute permit){shows}'
