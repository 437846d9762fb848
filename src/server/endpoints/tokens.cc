// /tokenize, /detokenize and /tokenizer_info, in the forms of vLLM and llama.cpp.
#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <utility>

#include "base/text/utf8.h"
#include "base/working_memory.h"
#include "server/api/models.h"
#include "server/api/request/field_readers.h"
#include "server/api/request/prompts.h"
#include "server/endpoints/chat.h"

namespace quire {
namespace {

// llama.cpp's form of a tokenized text. Bytes that are no text of their own are a list of numbers.
std::string plain_tokens(const ServedText& text, const TokenIds& ids, bool with_pieces) {
  if (!with_pieces) return fmt::format(R"({{"tokens":[{}]}})", fmt::join(ids, ","));
  std::string body = R"({"tokens":[)";
  for (const TokenId id : ids) {
    const std::string bytes = text.token_bytes(id);
    Json piece = bytes;
    if (!is_utf8(bytes)) {
      piece = Json::array();
      for (const char c : bytes) piece.push_back(static_cast<unsigned char>(c));
    }
    const std::string token =
        fmt::format(R"({}{{"id":{},"piece":{}}})", body.ends_with('[') ? "" : ",", id, dump(piece));
    if (body.capacity() - body.size() < token.size()) check_work(2 * body.capacity());
    body += token;
  }
  return body + "]}";
}

std::optional<std::string> tokenize(Service& service, ApiRequest& request) {
  if (request.prompts.empty()) service.prepare_chat(request);
  const TokenIds ids = service.encode(request, 0);
  note_work("writing {} tokens", ids.size());
  if (request.plain_tokens) return plain_tokens(service.text(), ids, request.with_pieces);
  // Written by hand: a body may yield millions of tokens, and a Json of their strings takes ten times their bytes.
  std::string body =
      fmt::format(R"({{"count":{},"max_model_len":{},"tokens":[)", ids.size(), service.model().max_model_len);
  const auto add = [&](const auto& token) {
    if (body.capacity() - body.size() < token.size() + 1) check_work(2 * body.capacity());
    body += token;
    body += ',';
  };
  for (const TokenId id : ids) add(std::to_string(id));
  if (!ids.empty()) body.pop_back();
  body += R"(],"token_strs":)";
  if (request.return_token_strs) {
    body += '[';
    for (const TokenId id : ids) add(dump(service.text().token_text(id)));
    if (!ids.empty()) body.pop_back();
    body += ']';
  } else {
    body += "null";
  }
  body += '}';
  return body;
}

std::optional<std::string> detokenize(Service& service, ApiRequest& request) {
  const std::string text = service.text().decode(std::get<TokenIds>(request.prompts.front()));
  return dump({{"prompt", text}, {"content", text}});  // vLLM's name, and llama.cpp's
}

void read_content(ApiDraft& draft, const JsonField& field) {
  const size_t before = draft.prompts.size();
  read_prompt(draft, field);
  if (const size_t texts = draft.prompts.size() - before; texts != 1)
    throw field.error("expected one text, found an array of {}", texts);
  draft.plain_tokens = true;
}

void read_add_special(ApiDraft& draft, const JsonField& field) { draft.add_special = field.boolean(); }

void settle_tokenize(ApiDraft& draft) {
  if (draft.has_messages == draft.has_prompt || draft.prompts.size() > 1) {
    throw bad_request("prompt", "give one of prompt, content and messages");
  }
  for (const auto& [given, name] :
       {std::pair{draft.add_special.has_value(), "add_special"}, {draft.with_pieces, "with_pieces"}}) {
    if (given && !draft.plain_tokens) throw bad_request(name, "belongs to content; with prompt, use vLLM's names");
  }
  if (draft.plain_tokens) draft.add_special_tokens = draft.add_special.value_or(false);
}

constexpr std::string_view kTokenSchemas = R"json({
  "Tokens": {"type": "object", "required": ["tokens"], "description": "with content, only tokens",
    "properties": {"count": {"type": "integer"}, "max_model_len": {"type": "integer"},
      "tokens": {"type": "array", "items": {"anyOf": [{"$ref": "#/components/schemas/TokenId"}, {"type": "object"}]}},
      "token_strs": {"type": ["array", "null"], "items": {"type": "string"}}}},
  "Text": {"type": "object", "required": ["prompt", "content"], "properties": {"prompt": {"type": "string"}, "content": {"type": "string"}}},
  "TokenizerInfo": {"type": "object", "required": ["vocab_size", "model_max_length", "bos_token", "eos_token",
    "chat_template", "added_tokens_decoder"], "properties": {"vocab_size": {"type": "integer"},
      "model_max_length": {"type": "integer"}, "add_bos_token": {"type": "boolean"}, "add_eos_token": {"type": "boolean"},
      "bos_token": {"type": ["string", "null"]}, "eos_token": {"type": ["string", "null"]},
      "unk_token": {"type": ["string", "null"]}, "pad_token": {"type": ["string", "null"]},
      "chat_template": {"type": ["string", "null"]}, "added_tokens_decoder": {"type": "object",
        "additionalProperties": {"type": "object", "required": ["content", "special"],
          "properties": {"content": {"type": "string"}, "special": {"type": "boolean"}}}}}}
})json";

}  // namespace

const ApiDefinition& tokenize_api() {
  static const ApiDefinition api{
      .path = "/tokenize",
      .summary = "Tokenize a text or a chat's prompt.",
      .fields = join(
          {kModelField,
           {"prompt", read_one_text, schemas::kText},
           {"content", read_content, schemas::kPrompts, "llama.cpp's: one prompt"},
           {"add_special", read_add_special, schemas::kSwitch, "with content: add BOS and the like; false by default"},
           {"with_pieces", &ApiRequest::with_pieces, {}, "with content: also the text of each token"},
           {"return_token_strs", &ApiRequest::return_token_strs},
           kAddSpecialTokensField,
           kParseSpecialField,
           kTemplateKwargsField},
          {chat_input_fields()}),
      .refused = {kOwnTemplateField},
      .settle = settle_tokenize,
      .reply = tokenize,
      .answer_schema = "Tokens",
      .body_schema = R"({"oneOf": [{"required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
                                   {"required": ["content"], "properties": {"content": {"not": {"type": "null"}}}},
                                   {"required": ["messages"], "properties": {"messages": {"type": "array"}}}]})",
      .schemas = kTokenSchemas};
  return api;
}

const ApiDefinition& detokenize_api() {
  static const ApiDefinition api{.path = "/detokenize",
                                 .summary = "Decode tokens.",
                                 .fields = {kModelField, {"tokens", read_tokens, schemas::kTokenIds}},
                                 .required = {"tokens"},
                                 .reply = detokenize,
                                 .answer_schema = "Text"};
  return api;
}

const GetDefinition& tokenizer_info_get() {
  static const GetDefinition get{.path = "/tokenizer_info",
                                 .summary = "the tokenizer, as a tokenizer_config.json",
                                 .reply = [](const Models& models, const GetRequest&) -> Reply {
                                   const auto info = models.first_loaded()->text().tokenizer_info();
                                   return {.body = info.dump(-1, ' ', false, Json::error_handler_t::replace)};
                                 },
                                 .answer_schema = "TokenizerInfo",
                                 .error = "400"};
  return get;
}

}  // namespace quire
