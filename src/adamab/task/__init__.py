"""What the user says: classes, samples, prompts and how they are read."""

from adamab.task.image_folders import read_image_samples, read_images
from adamab.task.images import Image
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.task.tables import TextRow, read_samples, read_texts
from adamab.task.task_file import load_task
from adamab.task.words import Vocabulary, bare, normalised_text

__all__ = [
    "ClassSpec",
    "Image",
    "Prompts",
    "Sample",
    "Task",
    "TextRow",
    "Vocabulary",
    "bare",
    "load_task",
    "normalised_text",
    "read_image_samples",
    "read_images",
    "read_samples",
    "read_texts",
]
