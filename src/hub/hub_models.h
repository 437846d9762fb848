// Models of the Hugging Face hub: its API and its cache.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hub/download_model.h"
#include "hub/http_request.h"

namespace quire {

std::optional<StoredModel> find_hub_model(const HubReference& model);
StoredModel download_hub_model(const HubReference& model, const DownloadOptions& options);
std::vector<StoredModel> stored_hub_models();
std::optional<StoredModel> removable_hub_model(const HubReference& model);
uint64_t remove_hub_model(const HubReference& model);

// $HF_ENDPOINT, or https://huggingface.co; without a slash at its end.
std::string hub_endpoint();
// $HF_TOKEN, or the token that the hub's own client has stored; empty: none. Throws Error if it cannot be a token.
std::string hub_token();

// Throws the Error for an answer of the hub that refuses a repository or a file of it, and says what to do.
[[noreturn]] void refuse_hub_model(const HubReference& model, const HttpReply& reply, bool has_token);

}  // namespace quire
