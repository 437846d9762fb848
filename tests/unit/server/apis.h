// The endpoints under short names, for tests.
#pragma once

#include <set>
#include <string_view>
#include <vector>

#include "server/api/definition.h"
#include "server/api/routes.h"

namespace quire {

// An endpoint by its path. Tables of tests can hold it before all_apis() is made.
struct Api {
  std::string_view path;

  const ApiDefinition& definition() const { return *find_api(path); }
  operator const ApiDefinition&() const { return definition(); }
  bool operator==(const Api&) const = default;

  static const Api kChat, kCompletion, kResponse, kCountInput, kMessage, kCountTokens, kEmbedding, kRerank, kScore,
      kTokenize, kDetokenize, kInfill, kLlamaCompletion, kApplyTemplate, kOllamaChat, kOllamaGenerate, kOllamaEmbed,
      kOllamaEmbeddings, kOllamaShow, kExplain;
};
inline constexpr Api Api::kChat{"/v1/chat/completions"};
inline constexpr Api Api::kCompletion{"/v1/completions"};
inline constexpr Api Api::kResponse{"/v1/responses"};
inline constexpr Api Api::kCountInput{"/v1/responses/input_tokens"};
inline constexpr Api Api::kMessage{"/v1/messages"};
inline constexpr Api Api::kCountTokens{"/v1/messages/count_tokens"};
inline constexpr Api Api::kEmbedding{"/v1/embeddings"};
inline constexpr Api Api::kRerank{"/v1/rerank"};
inline constexpr Api Api::kScore{"/v1/score"};
inline constexpr Api Api::kTokenize{"/tokenize"};
inline constexpr Api Api::kDetokenize{"/detokenize"};
inline constexpr Api Api::kInfill{"/infill"};
inline constexpr Api Api::kLlamaCompletion{"/completion"};
inline constexpr Api Api::kApplyTemplate{"/apply-template"};
inline constexpr Api Api::kOllamaChat{"/api/chat"};
inline constexpr Api Api::kOllamaGenerate{"/api/generate"};
inline constexpr Api Api::kOllamaEmbed{"/api/embed"};
inline constexpr Api Api::kOllamaEmbeddings{"/api/embeddings"};
inline constexpr Api Api::kOllamaShow{"/api/show"};
inline constexpr Api Api::kExplain{"/dashboard/explain"};

// But those that manage models and adapters.
inline std::vector<Api> every_api() {
  std::vector<Api> apis;
  for (const ApiDefinition* api : all_apis()) {
    const bool is_ollamas = api->path == "/api/pull" || api->path == "/api/delete" || api->path == "/api/copy";
    if (!api->path.starts_with("/models/") && !api->path.ends_with("_lora_adapter") && !is_ollamas)
      apis.push_back({api->path});
  }
  return apis;
}

// The names of the fields that any endpoint has, or refuses.
inline std::vector<std::string_view> every_field() {
  std::set<std::string_view> names;
  for (const ApiDefinition* api : all_apis()) {
    for (const ApiField& field : api->fields) names.insert(field.name);
    for (const RefusedField& field : api->refused) names.insert(field.name);
  }
  return {names.begin(), names.end()};
}

}  // namespace quire
