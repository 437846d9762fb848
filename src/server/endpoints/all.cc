// The list of all endpoints: the only place that knows them.
#include <vector>

#include "server/api/definition.h"
#include "server/api/store_definition.h"

namespace quire {

// Each is defined in the endpoint's own file.
const ApiDefinition& chat_api();
const ApiDefinition& completion_api();
const ApiDefinition& response_api();
const ApiDefinition& count_input_api();
const ApiDefinition& message_api();
const ApiDefinition& count_tokens_api();
const ApiDefinition& embedding_api();
const ApiDefinition& rerank_api();
const ApiDefinition& score_api();
const ApiDefinition& tokenize_api();
const ApiDefinition& detokenize_api();
const ApiDefinition& infill_api();
const ApiDefinition& llama_completion_api();
const ApiDefinition& apply_template_api();
const ApiDefinition& load_model_api();
const ApiDefinition& unload_model_api();
const ApiDefinition& load_adapter_api();
const ApiDefinition& unload_adapter_api();
const ApiDefinition& ollama_chat_api();
const ApiDefinition& ollama_generate_api();
const ApiDefinition& ollama_embed_api();
const ApiDefinition& ollama_embeddings_api();
const ApiDefinition& ollama_show_api();
const ApiDefinition& ollama_pull_api();
const ApiDefinition& ollama_delete_api();
const ApiDefinition& ollama_copy_api();
const ApiDefinition& explain_api();

const GetDefinition& tokenizer_info_get();
const GetDefinition& ollama_tags_get();
const GetDefinition& ollama_ps_get();
const GetDefinition& ollama_version_get();
const GetDefinition& llama_props_get();
const GetDefinition& llama_slots_get();
const GetDefinition& adapters_get();
std::span<const GetDefinition> server_pages();
std::span<const GetDefinition> dashboard_gets();

std::span<const StoreDefinition> file_stores();
std::span<const StoreDefinition> batch_stores();

std::span<const ApiDefinition* const> all_apis() {
  static const std::vector<const ApiDefinition*> apis = {
      &chat_api(),
      &completion_api(),
      &response_api(),
      &count_input_api(),
      &message_api(),
      &count_tokens_api(),
      &embedding_api(),
      &rerank_api(),
      &score_api(),
      &tokenize_api(),
      &detokenize_api(),
      &infill_api(),
      &llama_completion_api(),
      &apply_template_api(),
      &load_model_api(),
      &unload_model_api(),
      &ollama_chat_api(),
      &ollama_generate_api(),
      &ollama_embed_api(),
      &ollama_embeddings_api(),
      &ollama_show_api(),
      &ollama_pull_api(),
      &ollama_delete_api(),
      &ollama_copy_api(),
      &load_adapter_api(),
      &unload_adapter_api(),
      &explain_api(),
  };
  return apis;
}

std::span<const GetDefinition* const> all_gets() {
  static const std::vector<const GetDefinition*> gets = [] {
    std::vector<const GetDefinition*> all;
    for (const GetDefinition& page : server_pages()) all.push_back(&page);
    all.insert(all.end(), {&tokenizer_info_get(), &ollama_tags_get(), &ollama_ps_get(), &ollama_version_get(),
                           &llama_props_get(), &llama_slots_get(), &adapters_get()});
    for (const GetDefinition& page : dashboard_gets()) all.push_back(&page);
    return all;
  }();
  return gets;
}

std::span<const StoreDefinition* const> all_stores() {
  static const std::vector<const StoreDefinition*> stores = [] {
    std::vector<const StoreDefinition*> all;
    for (const auto& rows : {file_stores(), batch_stores()}) {
      for (const StoreDefinition& row : rows) all.push_back(&row);
    }
    return all;
  }();
  return stores;
}

}  // namespace quire
