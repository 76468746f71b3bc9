/* A little markdown, as elements: headings, lists, quotes, code, bold, italic, links to the web. What it does
   not know stays text, so a model cannot make the page do anything. */

import { h } from "./dom.js";

const INLINE = /(`[^`\n]+`)|(\*\*[^*\n]+\*\*)|(\*[^*\s][^*\n]*\*)|(\[[^\]\n]+\]\(https?:\/\/[^\s)]+\))/;

function inline(text) {
  const nodes = [];
  let rest = text;
  for (let found = INLINE.exec(rest); found; found = INLINE.exec(rest)) {
    if (found.index) nodes.push(rest.slice(0, found.index));
    nodes.push(span(found[0]));
    rest = rest.slice(found.index + found[0].length);
  }
  if (rest) nodes.push(rest);
  return nodes;
}

function span(text) {
  if (text.startsWith("`")) return h("code", {}, text.slice(1, -1));
  if (text.startsWith("**")) return h("strong", {}, ...inline(text.slice(2, -2)));
  if (text.startsWith("*")) return h("em", {}, ...inline(text.slice(1, -1)));
  const [, label, address] = /^\[(.+)\]\((.+)\)$/.exec(text);
  return h("a", { href: address, rel: "noopener noreferrer", target: "_blank" }, label);
}

const LIST = /^\s*(?:[-*]|(\d+)[.)])\s+(.*)$/;

export function markdown(text) {
  const blocks = [];
  const lines = text.split("\n");
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    if (line.startsWith("```")) {
      const end = lines.findIndex((other, index) => index > at && other.startsWith("```"));
      const last = end === -1 ? lines.length : end;
      blocks.push(h("pre", {}, h("code", {}, lines.slice(at + 1, last).join("\n"))));
      at = last + 1;
    } else if (/^#{1,4}\s/.test(line)) {
      blocks.push(h(`h${Math.min(6, line.indexOf(" ") + 2)}`, {}, ...inline(line.replace(/^#+\s+/, ""))));
      at += 1;
    } else if (line.startsWith(">")) {
      const start = at;
      while (at < lines.length && lines[at].startsWith(">")) at += 1;
      const quoted = lines.slice(start, at).map((each) => each.replace(/^>\s?/, "")).join("\n");
      blocks.push(h("blockquote", {}, markdown(quoted)));
    } else if (LIST.test(line)) {
      const items = [];
      const isNumbered = LIST.exec(line)[1] !== undefined;
      for (let item; at < lines.length && (item = LIST.exec(lines[at])); at += 1) {
        if ((item[1] !== undefined) !== isNumbered) break;
        items.push(h("li", {}, ...inline(item[2])));
      }
      blocks.push(h(isNumbered ? "ol" : "ul", {}, ...items));
    } else if (!line.trim()) {
      at += 1;
    } else {
      const start = at;
      while (at < lines.length && lines[at].trim() && !/^(#{1,4}\s|```|>)/.test(lines[at]) && !LIST.test(lines[at]))
        at += 1;
      blocks.push(h("p", {}, ...inline(lines.slice(start, at).join("\n"))));
    }
  }
  return blocks;
}
