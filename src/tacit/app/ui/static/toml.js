// Edits of a scenario's text: one key at a time, while everything else stays as it was written.

const isHead = (line) => /^\s*\[/.test(line);
const quoted = (name) => `["']?${name}["']?`;

/** Returns TOML with one key set, in its own line or in a new one of its table. */
export function setKey(toml, path, value) {
  const [table, key] = path.includes(".") ? path.split(".") : ["", path];
  const written = typeof value === "string" ? JSON.stringify(value) : String(value);
  const lines = toml.split("\n");
  const heads = lines.flatMap((each, i) => (isHead(each) ? [i] : []));
  const top = heads[0] ?? lines.length;
  if (!table) return setLine(lines, 0, top, key, written, Math.max(0, top - 1));
  const own = heads.find((i) => new RegExp(`^\\s*\\[\\s*${quoted(table)}\\s*\\]\\s*(#.*)?$`).test(lines[i]));
  if (own !== undefined) return setLine(lines, own + 1, heads.find((i) => i > own) ?? lines.length, key, written, own + 1);
  const dotted = lines.findIndex((each, i) => i < top && new RegExp(`^\\s*${quoted(table)}\\s*\\.\\s*${quoted(key)}\\s*=`).test(each));
  if (dotted >= 0) return lines.with(dotted, replaceValue(lines[dotted], written)).join("\n");
  // A table may also be given in one line, such as protocol = "secagg" or data = { parties = 3 }.
  const short = lines.findIndex((each, i) => i < top && new RegExp(`^\\s*${quoted(table)}\\s*=`).test(each));
  if (short >= 0) {
    const rest = lines[short].slice(lines[short].indexOf("=") + 1).trim();
    if (rest.startsWith("{")) return lines.with(short, setInline(lines[short], key, written)).join("\n");
    if (key === "name") return lines.with(short, replaceValue(lines[short], written)).join("\n");
  }
  const open = lines.findIndex((each, i) => i < top && new RegExp(`^\\s*${quoted(table)}\\s*\\.`).test(each));
  if (open >= 0) return lines.toSpliced(open + 1, 0, `${table}.${key} = ${written}`).join("\n");
  return `${toml.trimEnd()}\n\n[${table}]\n${key} = ${written}\n`;
}

function setLine(lines, from, to, key, written, at) {
  for (let i = from; i < to; i += 1)
    if (new RegExp(`^\\s*${quoted(key)}\\s*=`).test(lines[i])) return lines.with(i, replaceValue(lines[i], written)).join("\n");
  return lines.toSpliced(at, 0, `${key} = ${written}`).join("\n");
}

/** Returns a line with another value; the comment after it stays. */
function replaceValue(line, written) {
  const [, before, after] = /^(\s*[^=]+=\s*)([\s\S]*)$/.exec(line);
  const end = findEnd(after, 0, "#");
  const comment = after.slice(end);
  return `${before}${written}${comment ? ` ${comment}` : ""}`.trimEnd();
}

/** Returns an inline table with one key set. */
function setInline(line, key, written) {
  const begin = line.indexOf("{") + 1;
  for (let from = begin; from < line.length;) {
    const to = findEnd(line, from, ",}");
    const entry = line.slice(from, to);
    if (new RegExp(`^\\s*${quoted(key)}\\s*=`).test(entry)) {
      const [, space] = /(\s*)$/.exec(entry);
      return `${line.slice(0, from)}${entry.slice(0, entry.indexOf("=") + 1)} ${written}${space}${line.slice(to)}`;
    }
    if (line[to] !== ",") {
      const none = !line.slice(begin, to).trim();
      return `${line.slice(0, to).trimEnd()}${none ? " " : ", "}${key} = ${written} ${line.slice(to)}`;
    }
    from = to + 1;
  }
  return line;
}

/** Returns where a value ends: at one of some characters, outside of strings, lists and tables within it. */
function findEnd(text, from, ends) {
  let [depth, quote] = [0, ""];
  for (let i = from; i < text.length; i += 1) {
    const at = text[i];
    if (quote) {
      if (at === "\\" && quote === '"') i += 1;
      else if (at === quote) quote = "";
    } else if (at === '"' || at === "'") quote = at;
    else if (!depth && ends.includes(at)) return i;
    else if (at === "[" || at === "{") depth += 1;
    else if (at === "]" || at === "}") depth -= 1;
  }
  return text.length;
}
