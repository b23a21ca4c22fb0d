"""Mechanisms and motions in the browser, by viser, which is imported only when `view` is called."""

from .live import Live as Live
from .view import Page as Page
from .view import view as view
