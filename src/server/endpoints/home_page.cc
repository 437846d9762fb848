#include "server/endpoints/home_page.h"

#include <fmt/format.h>

#include "base/text/escape_html.h"

namespace quire {
namespace {

// {0} title, {1} what runs here, {2} URL of the server, {3} line of the key's header, {4} the request's model,
// {5} link to the dashboard
constexpr std::string_view kPage = R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{0}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color-scheme: light dark; }}
pre {{ padding: .8rem; overflow-x: auto; border: 1px solid #8886; border-radius: 6px; }}
td {{ padding-right: 1rem; }}
</style>
</head>
<body>
<h1>{0}</h1>
<p>{1}</p>
<table>
<tr><td>Base URL for OpenAI clients</td><td><code>{2}/v1</code></td></tr>
<tr><td>Base URL for Anthropic and Ollama clients</td><td><code>{2}</code></td></tr>
</table>
<pre>curl {2}/v1/chat/completions \
  -H 'Content-Type: application/json' \{3}
  -d '{{{4}"messages": [{{"role": "user", "content": "Hello"}}]}}'</pre>
<p>{5}<a href="/openapi.json">API description</a> · <a href="/metrics">metrics</a> · <a href="/health">health</a></p>
</body>
</html>
)html";

}  // namespace

Reply home_page(const HomePage& page) {
  const bool open = !page.model.empty();
  const std::string model = escape_html(page.model);
  const std::string title = page.version.empty() ? "Quire" : fmt::format("Quire {}", escape_html(page.version));
  const std::string about =
      open ? fmt::format("This server runs the model <b>{}</b>.", model) : "This server needs an API key.";
  const std::string_view key = open ? "" : "\n  -H 'Authorization: Bearer KEY' \\";
  const std::string field = open ? fmt::format("\"model\": \"{}\", ", model) : "";
  const std::string_view dashboard = page.dashboard ? "<a href=\"/dashboard\">Dashboard and chat</a> · " : "";
  return {.body = fmt::format(kPage, title, about, escape_html(page.url), key, field, dashboard),
          .content_type = "text/html; charset=utf-8",
          .headers = {{"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"}}};
}

}  // namespace quire
