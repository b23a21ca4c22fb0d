"""Transcription of optimal control problems into nonlinear programs."""

from .base import AbstractTranscription as AbstractTranscription
from .hermite_simpson import HermiteSimpson as HermiteSimpson
from .multiple_shooting import DirectMultipleShooting as DirectMultipleShooting
from .transcribe import Transcribed as Transcribed
from .transcribe import transcribe as transcribe
from .trapezoidal import Trapezoidal as Trapezoidal
