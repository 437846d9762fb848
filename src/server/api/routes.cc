#include "server/api/routes.h"

#include <algorithm>

#include "json/parse.h"

namespace quire {
namespace {

constexpr ApiInfo kApis[] = {
    {Api::kChat, "/v1/chat/completions", "Answer a chat."},
    {Api::kCompletion, "/v1/completions", "Continue texts."},
    {Api::kResponse, "/v1/responses", "Answer a text or a conversation: OpenAI's Responses API, text only."},
    {Api::kCountInput, "/v1/responses/input_tokens", "Count the prompt tokens of a request to /v1/responses."},
    {Api::kMessage, "/v1/messages", "Answer a conversation: Anthropic's Messages API, text only."},
    {Api::kCountTokens, "/v1/messages/count_tokens", "Count the prompt tokens of a request to /v1/messages."},
    {Api::kEmbedding, "/v1/embeddings", "Embed texts: vectors from the final hidden states."},
    {Api::kRerank, "/v1/rerank", "Order documents by their relevance to a query."},
    {Api::kScore, "/v1/score", "Score pairs of texts."},
    {Api::kTokenize, "/tokenize", "Tokenize a text or a chat's prompt."},
    {Api::kDetokenize, "/detokenize", "Decode tokens."},
    {Api::kInfill, "/infill", "Fill in the middle: the text between two others, llama.cpp's API."},
    {Api::kLlamaCompletion, "/completion", "Continue texts: llama.cpp's API."},
    {Api::kApplyTemplate, "/apply-template", "Render a chat's prompt: llama.cpp's API."},
    {Api::kOllamaChat, "/api/chat", "Answer a chat: Ollama's API."},
    {Api::kOllamaGenerate, "/api/generate", "Answer a text, or continue one: Ollama's API."},
    {Api::kOllamaEmbed, "/api/embed", "Embed texts: Ollama's API."},
    {Api::kOllamaEmbeddings, "/api/embeddings", "Embed a text: Ollama's older API."},
    {Api::kOllamaShow, "/api/show", "Describe the model: Ollama's API."},
};

struct GetRow {
  std::string_view path;
  Endpoint endpoint;
  bool needs_key = true;
};
constexpr GetRow kGets[] = {
    {"/", Endpoint::kHome, false},
    {"/health", Endpoint::kHealth, false},
    {"/ready", Endpoint::kReady, false},
    {"/version", Endpoint::kVersion},
    {"/openapi.json", Endpoint::kOpenApi},
    {"/metrics", Endpoint::kMetrics, false},
    {"/v1/models", Endpoint::kModels},
    {"/tokenizer_info", Endpoint::kTokenizerInfo},
    {"/api/tags", Endpoint::kOllamaTags},
    {"/api/ps", Endpoint::kOllamaPs},
    {"/api/version", Endpoint::kOllamaVersion},
    {"/props", Endpoint::kLlamaProps},
    {"/slots", Endpoint::kLlamaSlots},
};
constexpr std::string_view kModelPath = "/v1/models/{id}", kModelPrefix = "/models/";

// Without "/v1" at the beginning and slashes at the end.
std::string_view without_version(std::string_view path) {
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  return path;
}
std::string_view bare(std::string_view path) {
  path = without_version(path);
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

const ApiInfo* find_api(std::string_view path) {
  // Other servers' paths for the same endpoint.
  const bool reranks = bare(path) == "/v2/rerank" || bare(path) == "/reranking";
  const auto found =
      std::ranges::find(kApis, reranks ? "/rerank" : bare(path), [](const ApiInfo& api) { return bare(api.path); });
  return found == std::end(kApis) ? nullptr : found;
}

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::span<const ApiInfo> api_list() { return kApis; }
const ApiInfo& api_info(Api api) { return *std::ranges::find(kApis, api, &ApiInfo::api); }

Route find_route(std::string_view method, std::string_view path, std::string& allow) {
  const auto require = [&](std::string_view allowed) {
    if (allowed == method || (allowed == "GET" && method == "HEAD")) return;
    allow = allowed == "GET" ? "GET, HEAD" : allowed;
    throw ApiError(405, fmt::format("{} is not allowed here; allowed: {}", describe(Json(method)), allow),
                   "invalid_request_error", {}, "method_not_allowed");
  };
  if (const ApiInfo* api = find_api(path)) {
    require("POST");
    return {.endpoint = Endpoint::kApi, .api = api->api, .name = api->path, .argument = {}};
  }
  for (const GetRow& row : kGets) {
    if (bare(row.path) != bare(path)) continue;
    require("GET");
    return {.endpoint = row.endpoint, .name = row.path, .argument = {}};
  }
  const std::string_view model = without_version(path);
  if (model.starts_with(kModelPrefix) && model.size() > kModelPrefix.size()) {
    require("GET");
    return {
        .endpoint = Endpoint::kModel, .name = kModelPath, .argument = std::string(model.substr(kModelPrefix.size()))};
  }
  throw ApiError(404, fmt::format("nothing found at {}; GET /openapi.json lists the paths", describe(Json(path))),
                 "invalid_request_error", {}, "unknown_url");
}

std::string path_of_target(std::string_view target) {
  const size_t scheme = target.starts_with('/') ? target.npos : target.find("://");
  if (scheme != target.npos) target.remove_prefix(std::min(target.find('/', scheme + 3), target.size()));
  return percent_decoded(target.substr(0, target.find_first_of("?#")));
}

bool needs_no_key(std::string_view path) {
  return std::ranges::any_of(kGets, [&](const GetRow& row) { return bare(row.path) == bare(path) && !row.needs_key; });
}

ErrorShape error_shape_of(std::string_view path) {
  if (bare(path).starts_with("/api/")) return ErrorShape::kOllama;
  const ApiInfo* api = find_api(path);
  const bool anthropic = api && (api->api == Api::kMessage || api->api == Api::kCountTokens);
  return anthropic ? ErrorShape::kAnthropic : ErrorShape::kOpenAi;
}

}  // namespace quire
