"""Methods about devices: approving, removing, and their tokens.

No one can grant or take away what they do not have themselves, or rename a device that has more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from clawkit.gateway.login_codes import VALID_S
from clawkit.gateway.methods.method import Method
from clawkit.gateway.protocol import (
    ACCESS_CHANGED,
    Closed,
    NoParams,
    Role,
    Short,
    Word,
    Words,
    invalid,
    missing_scope,
    now_ms,
)
from clawkit.gateway.scopes import ADMIN, PAIRING, lacking, satisfies

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection

_REVOKED = "device access changed"


class RequestId(Closed, frozen=True):
    request_id: Short


class DeviceId(Closed, frozen=True):
    device_id: Short


class DeviceRename(DeviceId, frozen=True):
    label: Word


class TokenParams(Closed, frozen=True):
    device_id: Short
    role: Role = "operator"
    scopes: Words | None = None


class Revoke(Closed, frozen=True):
    device_id: Short
    role: Role = "operator"


async def _list(caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    gateway = caller.gateway
    paired = [
        each.to_json() | {"connected": bool(gateway.hub.of_device(each.about.device_id))}
        for each in gateway.devices.paired()
    ]
    return {
        "pending": [each.to_json() for each in gateway.devices.pending(now_ms())],
        "paired": paired,
    }


def check_rights(
    caller: GatewayConnection, roles: Iterable[str], scopes: list[str] | tuple[str, ...]
) -> None:
    """Nodes need the owner: they have no scopes that could be compared."""
    if caller.may(ADMIN):
        return
    if "node" in roles:
        raise missing_scope(ADMIN)
    if missing := lacking(caller.scopes, scopes):
        raise missing_scope(missing[0])


async def _login_code(caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    """A code that lets one browser log in as the owner, and where the control page is."""
    page = caller.gateway.settings.control_ui
    if not page.enabled:
        raise invalid("the control page is turned off: gateway.controlUi.enabled is false")
    code, expires = caller.gateway.codes.make(), now_ms() + round(VALID_S * 1000)
    return {"code": code, "path": f"{page.base}/", "expiresAtMs": expires}


async def _approve(caller: GatewayConnection, params: RequestId, _id: str) -> Any:
    devices, now = caller.gateway.devices, now_ms()
    pending = devices.get_pending(params.request_id, now)
    check_rights(caller, [pending.role], pending.scopes)
    device = devices.approve(pending.about, pending.role, pending.scopes, now, "owner")
    _tell(caller, pending.id, pending.about.device_id, "approved")
    return {"requestId": pending.id, "device": device.to_json()}


async def _reject(caller: GatewayConnection, params: RequestId, _id: str) -> Any:
    pending = caller.gateway.devices.get_pending(params.request_id, now_ms())
    caller.gateway.devices.drop_pending(pending.id)
    _tell(caller, pending.id, pending.about.device_id, "rejected")
    return {"requestId": pending.id, "deviceId": pending.about.device_id}


async def _remove(caller: GatewayConnection, params: DeviceId, _id: str) -> Any:
    devices = caller.gateway.devices
    if params.device_id != caller.device:
        device = devices.get(params.device_id)
        check_rights(caller, device.tokens, device.scopes)
    devices.remove(params.device_id)
    _tell(caller, "", params.device_id, "removed")
    disconnect(caller, params.device_id)
    return {"deviceId": params.device_id}


async def _rename(caller: GatewayConnection, params: DeviceRename, _id: str) -> Any:
    devices = caller.gateway.devices
    if params.device_id != caller.device:
        device = devices.get(params.device_id)
        check_rights(caller, device.tokens, device.scopes)
    devices.rename(params.device_id, params.label)
    return {"deviceId": params.device_id, "label": params.label}


async def _rotate(caller: GatewayConnection, params: TokenParams, _id: str) -> Any:
    devices, now = caller.gateway.devices, now_ms()
    held = _scopes_of(caller, params.device_id, params.role)
    check_rights(caller, [params.role], held)
    if params.scopes is not None and (more := [each for each in params.scopes if each not in held]):
        raise missing_scope(more[0])
    token, scopes = devices.rotate(params.device_id, params.role, params.scopes, now)
    disconnect(caller, params.device_id, params.role, but=caller)
    is_own = params.device_id == caller.device
    if is_own and params.role == caller.role:
        caller.grant(each for each in caller.scopes if satisfies(scopes, each))
    shown = {
        "deviceId": params.device_id,
        "role": params.role,
        "scopes": list(scopes),
        "rotatedAtMs": now,
        "tokenDelivery": "inline" if is_own else "withheld-cross-device",
    }
    return shown | ({"token": token} if is_own else {})


async def _revoke(caller: GatewayConnection, params: Revoke, _id: str) -> Any:
    now = now_ms()
    if params.device_id != caller.device:
        held = _scopes_of(caller, params.device_id, params.role)
        check_rights(caller, [params.role], held)
    caller.gateway.devices.revoke(params.device_id, params.role, now)
    disconnect(caller, params.device_id, params.role)
    return {"deviceId": params.device_id, "role": params.role, "revokedAtMs": now}


def _scopes_of(caller: GatewayConnection, device: str, role: Role) -> tuple[str, ...]:
    known = caller.gateway.devices.known(device)
    grant = known.grants.get(role) if known else None
    if grant is None:
        raise invalid("unknown deviceId/role")
    return grant.scopes


def disconnect(
    caller: GatewayConnection, device: str, role: str = "", *, but: GatewayConnection | None = None
) -> None:
    """What a device may do has changed, so it has to log in again."""
    for client in caller.gateway.hub.of_device(device):
        if client is but or role not in ("", client.role):
            continue
        if client is caller:  # it gets its answer first
            asyncio.get_running_loop().call_soon(client.close, ACCESS_CHANGED, _REVOKED)
        else:
            client.close(ACCESS_CHANGED, _REVOKED)


def _tell(caller: GatewayConnection, request: str, device: str, decision: str) -> None:
    payload = {"requestId": request, "deviceId": device, "decision": decision, "ts": now_ms()}
    caller.gateway.hub.broadcast("device.pair.resolved", payload)


METHODS = (
    Method("device.pair.list", PAIRING, NoParams, _list),
    Method("device.pair.loginCode", ADMIN, NoParams, _login_code, limited=True),
    Method("device.pair.approve", PAIRING, RequestId, _approve),
    Method("device.pair.reject", PAIRING, RequestId, _reject),
    Method("device.pair.remove", PAIRING, DeviceId, _remove),
    Method("device.pair.rename", PAIRING, DeviceRename, _rename),
    Method("device.token.rotate", PAIRING, TokenParams, _rotate),
    Method("device.token.revoke", PAIRING, Revoke, _revoke),
)
