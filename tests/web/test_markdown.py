"""Pages as Markdown: what is kept, and what the words of a page cannot do."""

from __future__ import annotations

from clawkit.web.extract import extract_page

BASE = "https://example.org/docs/page"

# What a page has, and the Markdown and the text that are made of it.
CASES = {
    "<h2>One  <b>two</b></h2><p>Three.</p>": ("## One two\n\nThree.", "One two\n\nThree."),
    "<p>a<br>b</p>": ("a\nb", "a\nb"),
    "<p>a <a href='../x?q=1'>link</a>.</p>": (
        "a [link](https://example.org/x?q=1).",
        "a link.",
    ),
    "<a href='mailto:a@example.org'>mail</a>": ("[mail](mailto:a@example.org)", "mail"),
    "<a href='javascript:alert(1)'>js</a> <a href=' java\nscript:x'>j</a>": ("js j", "js j"),
    "<a href='data:text/html,x'>d</a> <a href='#top'>top</a>": ("d top", "d top"),
    "<a href='/a(b)'>x</a>": ("[x](https://example.org/a%28b%29)", "x"),
    "<img src=/i.png alt='A cat'>": ("![A cat](https://example.org/i.png)", ""),
    "<p>x<img src=/i.png><img src='data:image/png;base64,AA' alt=dot></p>": ("x", "x"),
    "<ul><li>a<li>b<ul><li>c</ul></ul>": ("- a\n- b\n  - c", "a\nb\nc"),
    "<ul><li><p>a<p>b<p>c</ul>": ("- a\n\n  b\n\n  c", "a\n\nb\n\nc"),
    "<h3>Top<a href='#top'>¶</a></h3>": ("### Top", "Top"),
    "<ol start=3><li>a<li>b</ol>": ("3. a\n4. b", "3. a\n4. b"),
    "<blockquote><p>a<p>b</blockquote>": ("> a\n>\n> b", "a\n\nb"),
    "<dl><dt>Term<dd>Meaning</dl>": ("Term\n\n: Meaning", "Term\n\nMeaning"),
    "<p>use <code>a`b</code></p>": ("use ``a`b``", "use a`b"),
    "<p>use <code>`</code></p>": ("use `` ` ``", "use `"),
    "<pre><code class='language-py'>if a:\n    b\n</code></pre>": (
        "```py\nif a:\n    b\n```",
        "if a:\n    b",
    ),
    "<pre>```\nx</pre>": ("````\n```\nx\n````", "```\nx"),
    "<table><tr><th>a<th>b<tr><td>1|2<td>3</table>": (
        "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |",
        "a\tb\n1|2\t3",
    ),
    "<table><tr><td colspan=2>a<td>b<tr><td>c</table>": (
        "| a |  | b |\n| --- | --- | --- |\n| c |",
        "a\t\tb\nc",
    ),
    "<table><tr><td><h1>Top</h1><td><ul><li>a</ul></table>": ("# Top\n\n- a", "Top\n\na"),
    "<table><tr><td>one<tr><td>two</table>": ("one\n\ntwo", "one\n\ntwo"),
    "<p>a</p><hr><p>b</p>": ("a\n\n---\n\nb", "a\n\nb"),
    # Words that look like structure.
    "<p># no heading</p>": ("\\# no heading", "# no heading"),
    "<p>- no item</p><p>7. no item</p>": ("\\- no item\n\n7\\. no item", "- no item\n\n7. no item"),
    "<p>&gt; no quote<br>===</p>": ("\\> no quote\n\\===", "> no quote\n==="),
    "<p>```<br>~~~</p>": ("\\```\n\\~~~", "```\n~~~"),
    "<p>[a](http://x.example)</p>": ("[a\\](http://x.example)", "[a](http://x.example)"),
    "<p>&lt;script&gt; 1 &lt; 2</p>": ("\\<script> 1 < 2", "<script> 1 < 2"),
}


def test_markdown_keeps_structure_and_text_mode_only_words() -> None:
    found = {
        html: tuple(
            extract_page(html, base_url=BASE, mode=mode, main_only=False).text
            for mode in ("markdown", "text")
        )
        for html in CASES
    }
    assert found == CASES


def test_base_of_the_page_is_used_for_its_links() -> None:
    html = "<base href='//other.example/a/'><a href=b>x</a>"
    assert extract_page(html, base_url=BASE).text == "[x](https://other.example/a/b)"
    assert extract_page("<a href=b>x</a>").text == "x"


def test_addresses_and_indents_cannot_multiply_a_page() -> None:
    long = "https://example.org/" + "x" * 900 + "/"
    links = extract_page("<a href=a>b</a> " * 20_000, base_url=long, main_only=False).text
    assert len(links) < 700_000
    quotes = "<blockquote>" * 140 + "<p>x" * 1_000
    assert len(extract_page(quotes, main_only=False).text) < 40_000
    cells = "<table><tr>" + "<td colspan=999>x" * 1_000
    assert len(extract_page(cells, main_only=False).text) < 60_000
