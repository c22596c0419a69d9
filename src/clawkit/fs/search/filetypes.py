"""File types by name, for searches without ripgrep, which knows many more."""

from __future__ import annotations

from clawkit.errors import ToolInputError

# fmt: off
_TYPES: dict[str, tuple[str, ...]] = {
    "c": ("*.c", "*.h", "*.H", "*.cats"),
    "clojure": ("*.clj", "*.cljc", "*.cljs", "*.cljx"),
    "cmake": ("*.cmake", "CMakeLists.txt"),
    "config": ("*.cfg", "*.conf", "*.config", "*.ini"),
    "cpp": ("*.C", "*.H", "*.cc", "*.cpp", "*.cxx", "*.h", "*.hh", "*.hpp", "*.hxx", "*.inl"),
    "cs": ("*.cs",),
    "css": ("*.css", "*.scss"),
    "csv": ("*.csv",),
    "dart": ("*.dart",),
    "docker": ("*Dockerfile*",),
    "elixir": ("*.eex", "*.ex", "*.exs", "*.heex", "*.leex", "*.livemd"),
    "erlang": ("*.erl", "*.hrl"),
    "go": ("*.go",),
    "graphql": ("*.graphql", "*.graphqls"),
    "haskell": ("*.hs", "*.hsc", "*.lhs"),
    "html": ("*.ejs", "*.htm", "*.html"),
    "java": ("*.java", "*.jsp", "*.jspx", "*.properties"),
    "js": ("*.cjs", "*.js", "*.jsx", "*.mjs", "*.vue"),
    "json": ("*.json", "composer.lock"),
    "kotlin": ("*.kt", "*.kts"),
    "less": ("*.less",),
    "lua": ("*.lua",),
    "make": ("*.mak", "*.mk", "[Mm]akefile", "[Mm]akefile.*", "GNUmakefile"),
    "md": ("*.markdown", "*.md", "*.mdown", "*.mdx", "*.mkd"),
    "nix": ("*.nix",),
    "objc": ("*.h", "*.m"),
    "perl": ("*.PL", "*.perl", "*.pl", "*.pm", "*.t"),
    "php": ("*.php", "*.phtml"),
    "proto": ("*.proto",),
    "ps": ("*.ps1", "*.psd1", "*.psm1"),
    "py": ("*.py", "*.pyi"),
    "r": ("*.R", "*.Rmd", "*.r"),
    "rst": ("*.rst",),
    "ruby": ("*.gemspec", "*.rake", "*.rb", "Gemfile", "Rakefile", "config.ru"),
    "rust": ("*.rs",),
    "sass": ("*.sass", "*.scss"),
    "scala": ("*.sbt", "*.scala"),
    "sh": ("*.bash", "*.sh", "*.zsh", ".bashrc", ".profile", ".zshrc"),
    "sql": ("*.psql", "*.sql"),
    "svelte": ("*.svelte",),
    "swift": ("*.swift",),
    "tex": ("*.bib", "*.cls", "*.sty", "*.tex"),
    "tf": ("*.tf", "*.tf.json", "*.tfvars"),
    "toml": ("*.toml", "Cargo.lock"),
    "ts": ("*.cts", "*.mts", "*.ts", "*.tsx"),
    "txt": ("*.txt",),
    "vue": ("*.vue",),
    "xml": ("*.dtd", "*.xhtml", "*.xml", "*.xsd", "*.xsl", "*.xslt"),
    "yaml": ("*.yaml", "*.yml"),
    "zig": ("*.zig",),
}
# fmt: on
_OTHERS = {"csharp": "cs", "markdown": "md", "python": "py", "typescript": "ts"}


def names_of(file_type: str) -> tuple[str, ...]:
    """The globs over base names that a type stands for. Raises for one that is not known."""
    found = _TYPES.get(_OTHERS.get(file_type, file_type))
    if found is None:
        raise unknown_type(file_type, (*_TYPES, *_OTHERS))
    return found


def unknown_type(name: str, known: tuple[str, ...]) -> ToolInputError:
    """What is said of a type that is none of the known ones."""
    from clawkit.text import nearest

    close = nearest(name, known) or [each for each in ("py", "js", "ts") if each in known]
    return ToolInputError(
        f"there is no file type {name!r}; some are {', '.join(map(repr, close))}. A glob such as "
        "'*.py' does as well"
    )
