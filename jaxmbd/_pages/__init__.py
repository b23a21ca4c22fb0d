"""Pages for the browser, each one file: how they are saved and served, and what they consist of."""

from .content import Content as Content
from .content import embedded as embedded
from .page import AbstractPage as AbstractPage
