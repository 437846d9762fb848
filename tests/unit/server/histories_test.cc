// Whatever a client sends is in the prompt, or the request is a 400 that names it: many shapes of histories, many kinds
// of templates. QUIRE_TEMPLATES=FOLDER runs them on that folder's *.jinja files, too, and prints a table.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "server/api/answer/chat_format.h"
#include "server/api/error.h"
#include "unit/server/parse_request.h"
#include "unit/server/scripted_completer.h"

namespace quire {
namespace {

struct Shape {
  std::string name;
  Api api;
  std::string fields;              // the body's fields
  std::vector<std::string> texts;  // those that the prompt must have
};

constexpr const char* kTools = R"("tools": [{"type": "function", "function": {"name": "look_up", "description": "finds",
  "parameters": {"type": "object", "properties": {"q": {"type": "string", "description": "what"}}}}}])";
constexpr const char* kMessageTools = R"("max_tokens": 5, "tools": [{"name": "look_up", "description": "finds",
  "input_schema": {"type": "object", "properties": {"q": {"type": "string", "description": "what"}}}}])";

std::string call(const std::string& id, const std::string& arguments) {
  return R"({"id": ")" + id + R"(", "type": "function", "function": {"name": "look_up", "arguments": )" +
         Json(arguments).dump() + "}}";
}

std::string result(const std::string& id, const std::string& content) {
  return R"({"role": "tool", "tool_call_id": ")" + id + R"(", "content": )" + content + "}";
}

std::vector<Shape> shapes() {
  const std::string tools = kTools, message_tools = kMessageTools;
  const std::string user = R"({"role": "user", "content": "user-1 asks"})",
                    answer = R"({"role": "assistant", "content": "answer-1 says"})",
                    more = R"({"role": "user", "content": "user-2 asks"})";
  const auto chat = [](const std::string& messages) { return "\"messages\": [" + messages + "]"; };
  const std::string called =
      R"({"role": "assistant", "content": null, "tool_calls": [)" + call("c1", R"({"q": "query-1"})");
  return {
      {"developer",
       Api::kChat,
       chat(R"({"role": "developer", "content": "dev-1 rules"}, )" + user),
       {"dev-1 rules", "user-1 asks"}},
      {"system, developer",
       Api::kChat,
       chat(R"({"role": "system", "content": "sys-1 rules"}, {"role": "developer", "content": "dev-1 rules"}, )" +
            user),
       {"sys-1 rules", "dev-1 rules", "user-1 asks"}},
      {"instructions, developer",
       Api::kResponse,
       R"("instructions": "sys-1 rules", "input": [{"role": "developer", "content": "dev-1 rules"}, )" + user + "]",
       {"sys-1 rules", "dev-1 rules", "user-1 asks"}},
      {"developer later",
       Api::kChat,
       chat(user + "," + answer + R"(, {"role": "developer", "content": "dev-1 rules"}, )" + more),
       {"dev-1 rules", "user-1 asks", "answer-1 says", "user-2 asks"}},
      {"system later",
       Api::kChat,
       chat(R"({"role": "system", "content": "sys-1 rules"}, )" + user + "," + answer +
            R"(, {"role": "system", "content": "sys-2 rules"}, )" + more),
       {"sys-1 rules", "sys-2 rules", "user-1 asks", "answer-1 says", "user-2 asks"}},
      {"system last",
       Api::kChat,
       chat(user + R"(, {"role": "system", "content": "sys-1 rules"})"),
       {"sys-1 rules", "user-1 asks"}},
      {"result and text",
       Api::kMessage,
       message_tools + R"(, "system": "sys-1 rules", "messages": [)" + user +
           R"(, {"role": "assistant", "content": [{"type": "text", "text": "answer-1 says"},
                {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"q": "query-1"}}]},
              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "result-1"},
                {"type": "text", "text": "user-2 asks"}]}])",
       {"sys-1 rules", "user-1 asks", "answer-1 says", "query-1", "result-1", "user-2 asks"}},
      {"results, null content",
       Api::kChat,
       tools + "," +
           chat(user + "," + called + "," + call("c2", R"({"q": "query-2"})") + "]}," + result("c1", R"("result-1")") +
                "," + result("c2", R"({"found": ["result-2"]})") + "," +
                R"({"role": "assistant", "content": "answer-2 says"}, )" + more + "," + called + "]}," +
                result("c1", "null")),
       {"user-1 asks", "query-1", "query-2", "result-1", "result-2", "answer-2 says", "user-2 asks"}},
      {"two users", Api::kChat, chat(user + "," + more), {"user-1 asks", "user-2 asks"}},
      {"two answers",
       Api::kChat,
       chat(user + "," + answer + R"(, {"role": "assistant", "content": "answer-2 says"}, )" + more),
       {"user-1 asks", "answer-1 says", "answer-2 says", "user-2 asks"}},
      {"answer begun",
       Api::kMessage,
       R"("max_tokens": 5, "system": "sys-1 rules", "messages": [)" + user + "," + answer + "]",
       {"sys-1 rules", "user-1 asks", "answer-1 says"}},
      {"parts",
       Api::kChat,
       chat(
           R"({"role": "user", "content": [{"type": "text", "text": "user-1 asks"}, {"type": "text", "text": "user-3 asks"}]},
               {"role": "assistant", "content": [{"type": "text", "text": "answer-1 says"},
                {"type": "refusal", "refusal": "answer-2 says"}]}, )" +
           more),
       {"user-1 asks", "user-3 asks", "answer-1 says", "answer-2 says", "user-2 asks"}},
      {"reasoning",
       Api::kChat,
       tools + "," +
           chat(user + R"(, {"role": "assistant", "content": "answer-1 says", "reasoning_content": "thought-1",
                 "tool_calls": [)" +
                call("c1", R"({"q": "query-1"})") + "]}," + result("c1", R"("result-1")") +
                R"(, {"role": "assistant", "reasoning": "thought-2", "content": "answer-2 says"}, )" + more),
       {"user-1 asks", "answer-1 says", "query-1", "result-1", "answer-2 says", "user-2 asks"}},
      {"cut arguments, then user",
       Api::kChat,
       tools + "," +
           chat(user + R"(, {"role": "assistant", "content": null, "tool_calls": [)" + call("c1", R"({"q": "query-1)") +
                "]}," + result("c1", R"("result-1")") + "," + more),
       {"user-1 asks", "query-1", "result-1", "user-2 asks"}},
      {"image",
       Api::kChat,
       chat(R"({"role": "user", "content": [{"type": "text", "text": "user-1 asks"},
               {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]})"),
       {"user-1 asks", "an image"}},
  };
}

// Empty: every text is in the prompt. Otherwise the field that a 400 names, or what is lost.
std::string outcome(const ScriptedCompleter& model, const ChatFormat& format, const Shape& shape) {
  try {
    ApiRequest request = parse(shape.api, "{" + shape.fields + "}");
    format.prepare(request);
    const std::string prompt = model.render_chat(request.chat);
    for (const std::string& text : shape.texts) {
      if (prompt.find(text) == std::string::npos) return "LOST " + text + " in " + prompt;
    }
    return "";
  } catch (const ApiError& e) {
    EXPECT_EQ(e.status, 400);
    return e.param.empty() ? "LOST the field in " + std::string(e.what()) : e.param;
  } catch (const Error& e) {
    return std::string("template: ") + e.what();
  }
}

struct Tried {
  explicit Tried(std::string source) {
    model.chat_template = std::move(source);
    model.renders = true;
  }
  std::string outcome(const Shape& shape) const { return quire::outcome(model, format(), shape); }
  const ChatFormat& format() const {
    if (!made) made.emplace(model, "auto", "auto");
    return *made;
  }

  ScriptedCompleter model;
  mutable std::optional<ChatFormat> made;
};

struct TemplateKind {
  const char *name, *source;
};

constexpr TemplateKind kKinds[] = {
    {"skips unknown roles",
     R"({% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{% if m.role in ['system', 'user'] or
        (m.role == 'assistant' and not m.tool_calls) %}<{{ m.role }}>{{ m.content }}{% elif m.role == 'assistant' %}<assistant>
        {{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}
        {% elif m.role == 'tool' %}<tool>{{ m.content }}{% endif %}{% endfor %})"},
    {"refuses late systems and unknown roles",
     R"({% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{% if m.role == 'system' %}
        {% if not loop.first %}{{ raise_exception('System message must be first.') }}{% endif %}<sys>{{ m.content | trim }}
        {% elif m.role == 'user' or m.role == 'tool' %}<{{ m.role }}>{{ m.content | trim }}{% elif m.role == 'assistant' %}
        <assistant>{{ m.content | trim }}{% for c in m.tool_calls or [] %}<f={{ c.function.name }}>
        {% for k, v in c.function.arguments | items %}<{{ k }}>{{ v }}{% endfor %}{% endfor %}{% else %}
        {{ raise_exception('Unexpected role.') }}{% endif %}{% endfor %})"},
    {"alternates, has no system messages",
     R"({% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) or m.role == 'system' %}
        {{ raise_exception('Roles must alternate.') }}{% endif %}<{{ m.role }}>{{ m.content | trim }}{% endfor %})"},
    {"alternates, joins the first system message with the user's",
     R"({% if messages[0].role == 'system' %}{% set s = messages[0].content + '\n\n' %}{% set rest = messages[1:] %}{% else %}
        {% set s = '' %}{% set rest = messages %}{% endif %}{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0)
        %}{{ raise_exception('Roles must alternate.') }}{% endif %}<{{ m.role }}>{{ s if loop.first }}{{ m.content }}
        {% endfor %})"},
    {"alternates without calls, shows them without their text",
     R"({% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% set rest = messages[1:] %}{% else %}
        {% set rest = messages %}{% endif %}{% set ns = namespace(i=0) %}{% for m in rest %}{% if m.role != 'tool' and
        m.tool_calls is not defined %}{% if (m.role == 'user') != (ns.i % 2 == 0) %}{{ raise_exception('must alternate') }}
        {% endif %}{% set ns.i = ns.i + 1 %}{% endif %}{% endfor %}{{ tools | tojson }}{% for m in rest %}
        {% if m.role == 'user' %}[INST]{{ s + '\n\n' if loop.last and s is defined }}{{ m.content }}[/INST]
        {% elif m.tool_calls is defined %}[CALLS]{{ m.tool_calls | tojson }}{% elif m.role == 'tool' %}[R]{{ m.content }}
        {% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %})"},
    {"names the developer, shows one call of a message and no later instructions",
     R"({% if messages[0].role in ['developer', 'system'] %}<dev>{{ messages[0].content }}{% set rest = messages[1:] %}
        {% else %}{% set rest = messages %}{% endif %}{{ tools | tojson }}{% set ns = namespace(name=none) %}
        {% for m in rest %}{% if m.role == 'assistant' %}{% if 'tool_calls' in m %}{% set c = m.tool_calls[0].function %}
        <to={{ c.name }}>{{ c.arguments | tojson }}{% set ns.name = c.name %}{% else %}<final>{{ m.content }}
        {% set ns.name = none %}{% endif %}{% elif m.role == 'tool' %}{% if ns.name is none %}{{ raise_exception('no call') }}
        {% endif %}<of={{ ns.name }}>{{ m.content | tojson }}{% elif m.role == 'user' %}<user>{{ m.content }}{% endif %}
        {% endfor %})"},
    {"drops later systems and calls",
     R"(<sys>{{ messages[0].content if messages[0].role == 'system' else 'Be nice.' }}{{ tools | tojson }}
        {% for m in messages %}{% if m.role in ['user', 'assistant', 'tool'] %}<{{ m.role }}>{{ m.content }}{% endif %}
        {% endfor %})"},
    {"refuses arguments that are no mapping, and strips thoughts",
     R"({{ tools | tojson }}{% for m in messages %}<{{ m.role }}>{% set text = m.content.split('</think>')[-1] %}{{ text }}
        {% for c in m.tool_calls or [] %}{{ c.function.name }}{% if c.function.arguments is not mapping %}
        {{ raise_exception('Invalid arguments') }}{% endif %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %})"},
};

TEST(Histories, AreShownWholeByTemplatesOfAllKinds) {
  for (const TemplateKind& kind : kKinds) {
    const Tried tried(kind.source);
    for (const Shape& shape : shapes()) {
      EXPECT_EQ(tried.outcome(shape), shape.name == "image" ? "messages[0].content[1].type" : "")
          << kind.name << ": " << shape.name;
    }
  }
}

TEST(Histories, AreRefusedWhereATemplateHidesThem) {
  const auto refused = [](const char* source, const std::string& fields, Api api = Api::kChat) {
    return Tried(source).outcome({"", api, fields, {"?"}});
  };
  constexpr const char* kLast = "{{ messages[-1].content }}";
  const std::string turns =
      R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "h"}, {"role": "user",
      "content": "which"}])";
  EXPECT_EQ(refused(kLast, R"("messages": )" + turns), "messages[0].content")
      << "although the prompt has these letters";
  EXPECT_EQ(refused(kLast, R"("input": )" + turns, Api::kResponse), "input[0]");
  EXPECT_EQ(refused(kLast, R"("instructions": "i", "input": )" + turns, Api::kResponse), "instructions");
  EXPECT_EQ(refused(kLast, R"("max_tokens": 5, "system": "i", "messages": )" + turns, Api::kMessage), "system");
  EXPECT_EQ(refused("{% for m in messages %}{% if m.role != 'assistant' %}{{ m.content }}{% endif %}{% endfor %}",
                    R"("max_tokens": 5, "system": "i", "messages": )" + turns, Api::kMessage),
            "messages[1]");
  EXPECT_EQ(refused(kLast, R"("system": "i", "prompt": "p", "template": null)", Api::kOllamaGenerate),
            "LOST ? in i\n\np");
  EXPECT_EQ(refused("chatml", R"("messages": [{"role": "user", "content": "m"}])"), "messages[0].content");
  EXPECT_EQ(refused("{{ messages[0].content }}", R"("documents": [{"title": "t", "text": "d"}],
      "messages": [{"role": "user", "content": "m"}])"),
            "documents[0]");
  EXPECT_EQ(refused("{% for m in messages %}{{ m.content[:4] }}{% endfor %}",
                    R"("messages": [{"role": "user", "content": "hello"}])"),
            "messages[0].content")
      << "only its beginning";
  EXPECT_EQ(refused("{% for m in messages %}{{ m.content }}{% endfor %}{{ tools[0] | tojson if tools }}",
                    R"("tools": [{"function": {"name": "f"}}, {"function": {"name": "g"}}],
                       "messages": [{"role": "user", "content": "m"}])"),
            "tools[1]");
}

TEST(Histories, AreNotRefusedForWhatTemplatesDoToThem) {
  const std::string body = R"("messages": [{"role": "system", "content": " \n Use /think \u00e9\ud83d\ude00 "},
      {"role": "user", "content": "<tool_response>\nx\n</tool_response>"},
      {"role": "assistant", "content": "<think>\nhm\n</think>\n\n \"yes\" "}, {"role": "user", "content": " "},
      {"role": "assistant", "content": "<think>only thoughts</think>"}, {"role": "user", "content": "a\tb\n\nc\\d\ue000"}])";
  for (const char* change : {"m.content", "m.content | trim", "m.content | tojson", "m.content | upper",
                             "m.content.strip().replace('/think', '')", "m.content.split('</think>')[-1].lstrip('\\n')",
                             "m", "m.content | e", "[m.content]", "m.content.split() | join(' ')"}) {
    const Tried tried("{% for m in messages %}{{ " + std::string(change) + " }}\n{% endfor %}");
    EXPECT_EQ(tried.outcome({"", Api::kChat, body, {}}), "") << change;
  }
  const Tried looks("{% for m in messages %}{% if m.content == 'ping' %}PING ping{% endif %}{% endfor %}");
  EXPECT_EQ(looks.outcome({"", Api::kChat, R"("messages": [{"role": "user", "content": "ping"}])", {}}), "");
}

// Not a test of this program's own templates: they are read from a folder that is named by the environment.
TEST(Histories, OfTemplatesInAFolder) {
  const char* folder = std::getenv("QUIRE_TEMPLATES");
  if (!folder) GTEST_SKIP() << "set QUIRE_TEMPLATES to a folder of *.jinja files";
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const auto& file : files) {
    std::ostringstream source;
    source << std::ifstream(file).rdbuf();
    const Tried tried(source.str());
    std::string row;
    std::vector<std::string> notes;
    for (const Shape& shape : shapes()) {
      const std::string found = tried.outcome(shape);
      EXPECT_FALSE(found.starts_with("LOST")) << file << ": " << shape.name << ": " << found;
      row += found.empty() ? " s" : found.starts_with("LOST") ? " L" : found.starts_with("template") ? " t" : " r";
      if (!found.empty() && shape.name != "image") notes.push_back("    " + shape.name + ": " + found.substr(0, 300));
    }
    std::cout << row << "  " << file.stem().string() << "\n";
    for (const std::string& note : notes) std::cout << note << "\n";
  }
}

}  // namespace
}  // namespace quire
