"""The golden file of the schema: `python -m tests.api.golden` writes it."""

from pathlib import Path
from typing import Any

import yaml

GOLDEN = Path(__file__).with_name("openapi.yaml")


def generated() -> str:
    """The schema of the demo, as YAML."""
    from drf_spectacular.generators import SchemaGenerator
    from drf_spectacular.renderers import OpenApiYamlRenderer

    schema = SchemaGenerator().get_schema(request=None, public=True)
    text: bytes = OpenApiYamlRenderer().render(schema, renderer_context={})
    return text.decode()


def parsed(text: str) -> Any:
    """A schema that was written as YAML."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


if __name__ == "__main__":
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    GOLDEN.write_text(generated(), encoding="utf-8")
