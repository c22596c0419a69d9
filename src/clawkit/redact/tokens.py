"""Secrets known by their own shape, wherever they stand."""

from __future__ import annotations

import binascii
import re

from clawkit.redact.masking import MASK, mask, mask_group, regex

_W = r"[A-Za-z0-9_\-]"

# A stretch of text long enough to hold a token. It starts at the character before it, so that the
# search looks at the beginnings of words only: the one expression every text goes through.
_RUN = r"[^A-Za-z0-9_.\-+/:][A-Za-z0-9_.\-+/:]{16,}+"

_VENDOR = rf"""(?x)(?<![A-Za-z0-9])(?:
    sk-{_W}{{16,}}                                                  # OpenAI, Anthropic and others
  | [sr]k_(?:live|test)_{_W}{{16,}} | whsec_[A-Za-z0-9+/]{{20,}}    # Stripe
  | gh[pousr]_[A-Za-z0-9]{{20,}} | github_pat_\w{{20,}}
  | gl(?:pat|dt|rtr?|cbt|ptt|ft|imt|agent|soat|ffct|oas|wt)-[A-Za-z0-9_.\-]{{16,}}
  | GR1348941{_W}{{16,}}                                            # GitLab runners
  | gl(?:sa|c)_\w{{20,}}                                            # Grafana
  | xox[a-z]-{_W}{{10,}} | x(?:app|wfp)-{_W}{{10,}} | xai-{_W}{{16,}}
  | hooks\.slack\.com/(?:services|workflows|triggers)/[\w/]{{16,}}
  | discord(?:app)?\.com/api/(?:v\d{{1,2}}/)?webhooks/\d{{6,20}}/{_W}{{20,}}
  | [MNO]{_W}{{22,27}}\.{_W}{{6}}\.{_W}{{27,}}                      # Discord bots
  | (?:bot)?\d{{8,10}}:AA{_W}{{30,}}                                # Telegram bots
  | AIza{_W}{{30,}} | ya29\.{_W}{{16,}} | 1//0{_W}{{20,}} | GOCSPX-{_W}{{16,}}    # Google
  | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}(?![A-Za-z0-9])            # AWS
  | AKID[A-Za-z0-9]{{13,}} | LTAI[A-Za-z0-9]{{12,}}                 # Tencent, Alibaba
  | (?<![_\-])eyJ{_W}{{8,}}+\.{_W}*+\.{_W}{{8,}}(?:\.{_W}+){{0,2}}  # JSON web tokens
  | (?:gsk|hf|r8|fw|exa|fal|sbp|nfp|ntn|vcp)_[A-Za-z0-9]{{20,}}
  | fal_{_W}{{30,}} | npm_[A-Za-z0-9]{{30,}} | pypi-Ag{_W}{{16,}} | rubygems_[a-f0-9]{{32,}}
  | SG\.{_W}{{16,64}}\.{_W}{{16,}}                                  # SendGrid
  | do[opr]_v1_[a-f0-9]{{20,}} | dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.\-]{{20,}}
  | dckr_[po]at_{_W}{{16,}} | dapi[a-f0-9]{{32}}
  | tvly-{_W}{{16,}} | pplx-{_W}{{16,}} | HRKU-{_W}{{16,}} | apify_api_[A-Za-z0-9]{{20,}}
  | AT(?:ATT|CTT)3{_W}{{20,}} | ATBB[A-Za-z0-9]{{20,}}              # Atlassian
  | fm[12]_[A-Za-z0-9_\-+/]{{20,}}                                  # Fly
  | sb_secret_{_W}{{16,}} | shp(?:at|ca|pa|ss)_[A-Za-z0-9]{{20,}} | sntry[su]_{_W}{{20,}}
  | sq0(?:csp|atp)-{_W}{{16,}} | lin_api_[A-Za-z0-9]{{20,}} | (?:PMAK|NRAK)-{_W}{{16,}}
  | pscale_(?:tkn|pw|oauth)_{_W}{{16,}} | hv[sbr]\.{_W}{{20,}} | figd_{_W}{{20,}}
  | tskey-[a-z]{{3,12}}-{_W}{{16,}}                                 # Tailscale
  | AGE-SECRET-KEY-1[A-Z0-9]{{20,}} | SK[0-9a-f]{{32}}(?![A-Za-z0-9])
  | (?<![_\-])key-[0-9a-f]{{32}}(?![A-Za-z0-9])                      # Mailgun
){_W}*+"""

_PEM = r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)([^-]*+(?:-(?!----)[^-]*+)*+)"
_PEM_LINE = r"[A-Za-z0-9+/=]{16,}+"

_URL_LOGIN = r"://(?:[^\s/?#:@\"'<>]{0,128}:([^\s/?#\"'<>]{1,4096})@|([^\s/?#:@\"'<>]{20,4096})@)"
_DSN_LOGIN = r"(?<![^\s\"'=])[\w.\-]{1,64}:([^\s\"']{1,256})@(?:tcp|unix)\("
# What `docker login` writes: user and password in base64.
_DOCKER_AUTH = r"\"auth\\?\"[ \t]{0,4}:[ \t]{0,4}\\?\"([A-Za-z0-9+/=]{4,4096})\\?\""
_NETRC = r"\blogin[ \t]+[^\s]{1,128}\s{1,8}password[ \t]+([^\s]+)"


def mask_shapes(text: str) -> str:
    """Mask every secret in the text that gives itself away."""
    if "PRIVATE KEY" in text:
        text = regex(_PEM).sub(_mask_key, text)
    # The line end stands for the beginning of the text, which a stretch may start at.
    text = regex(_RUN).sub(_mask_run, f"\n{text}")[1:]
    if "://" in text:
        text = regex(_URL_LOGIN).sub(_mask_login, text)
    if "@tcp(" in text or "@unix(" in text:
        text = regex(_DSN_LOGIN).sub(mask_group, text)
    if '"auth' in text:
        text = regex(_DOCKER_AUTH).sub(_mask_docker, text)
    if "machine " in text:
        text = regex(_NETRC).sub(mask_group, text)
    return text


def _mask_run(run: re.Match[str]) -> str:
    return regex(_VENDOR).sub(_mask_token, run[0])


def _mask_token(token: re.Match[str]) -> str:
    # `sk-learn-contrib-packages`: no vendor issues tokens without a digit or a capital.
    if regex(r"[a-z_.\-/:]+").fullmatch(token[0]):
        return token[0]
    # The end of one token, left in sight, could be the beginning of what follows it.
    glued = token.end() < len(token.string)
    return f"{token[0][:6]}…{MASK}" if glued else mask(token[0])


def is_login(value: str) -> bool:
    """Whether this is `user:password` in base64."""
    try:
        user, _, password = binascii.a2b_base64(value, strict_mode=True).decode().partition(":")
    except ValueError:
        return False
    return bool(user and password) and user.isprintable()


def _mask_docker(found: re.Match[str]) -> str:
    return mask_group(found) if is_login(found[1]) else found[0]


def _mask_key(key: re.Match[str]) -> str:
    """The frame stays, to tell what was there. Of a key without an end only its lines go."""
    header, body = key.groups()
    if regex(_PEM_LINE).search(body) is None:
        return key[0]
    if key.string.startswith("-----END", key.end()):
        return f"{header}\n{MASK}\n"
    return f"{header}{regex(_PEM_LINE).sub(MASK, body)}"


def _mask_login(url: re.Match[str]) -> str:
    password, token = url.groups()
    if password is None and regex(r"[0-9]").search(token) is None:
        return url[0]
    return mask_group(url)
