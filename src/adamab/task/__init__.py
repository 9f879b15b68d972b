"""What the user says: classes, samples, prompts and how they are read."""

from adamab.task.image_samples import missing_pictures, read_image_samples, read_images
from adamab.task.images import Image
from adamab.task.prompts import Prompts
from adamab.task.readers import TextRow, load_task, read_samples, read_text_stream, read_texts
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.task.words import Vocabulary, bare, folded, terms

__all__ = [
    "ClassSpec",
    "Image",
    "Prompts",
    "Sample",
    "Task",
    "TextRow",
    "Vocabulary",
    "bare",
    "folded",
    "load_task",
    "missing_pictures",
    "read_image_samples",
    "read_images",
    "read_samples",
    "read_text_stream",
    "read_texts",
    "terms",
]
