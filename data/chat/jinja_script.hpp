#pragma once

namespace train::data {

/// The program that renders templates, for `python3 -I -c PROGRAM DESCRIPTOR`: it speaks through
/// the socket DESCRIPTOR. Every answer is a line of JSON; that of a text is followed by its bytes.
///
///     -> {"sources": {NAME: TEMPLATE}, "tokens": {...}, "date": [Y, M, D],
///         "output_limit": BYTES, "memory_limit": BYTES}       once, first
///     <- {"pid", "python", "jinja2", "cpu"}, or {"missing": REASON} and the end
///     -> {"messages": [...], "tools": [...] or null, "variables": {...}}
///     -> {"template": NAME, "messages": COUNT, "add_generation_prompt": BOOL, "spans": BOOL,
///         "contents": [[INDEX, TEXT], ...]}                    "contents" only where some differ
///     <- {"bytes": COUNT, "spans": [[BEGIN, END], ...], "unasked": [NAME, ...], "cpu": SECONDS}
///     and the text, or
///        {"error": REASON, "line": NUMBER or null, "cpu": SECONDS}
///
/// Spans count code points, cpu is the processor time since the process began.
[[nodiscard]] const char* jinja_script();

}  // namespace train::data
