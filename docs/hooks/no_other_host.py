"""Fails the strict build if a page would load a script, a style sheet, a font or a picture from
another host: the site must be whole without a network."""

import logging
import re

log = logging.getLogger("mkdocs.hooks.no_other_host")
LOADS = re.compile(
    r'<(?:script|img|iframe|source)\b[^>]*\bsrc="(?P<src>(?:https?:)?//[^"]*)"'
    r'|<link\b(?=[^>]*\brel="(?:stylesheet|preload|icon)")[^>]*\bhref="(?P<href>(?:https?:)?//[^"]*)"'
)


def on_post_page(output, page, config):
    del config
    for found in LOADS.finditer(output):
        log.warning(f"{page.file.src_uri} loads {found['src'] or found['href']}")
    return output
