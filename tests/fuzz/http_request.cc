// links: server
// Any bytes as a request's body give a request or an ApiError with a JSON body. The first byte chooses the API.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "server/api/error.h"
#include "server/api/request.h"

static quire::Api api_of(char letter) {
  switch (letter) {
    case 'c':
      return quire::Api::kCompletion;
    case 'r':
      return quire::Api::kResponse;
    case 'a':
      return quire::Api::kMessage;
    case 'e':
      return quire::Api::kEmbedding;
    case 't':
      return quire::Api::kTokenize;
    case 'd':
      return quire::Api::kDetokenize;
    case 'i':
      return quire::Api::kInfill;
    case 'l':
      return quire::Api::kLlamaCompletion;
    case 'o':
      return quire::Api::kOllamaChat;
    case 'g':
      return quire::Api::kOllamaGenerate;
    case 'b':
      return quire::Api::kOllamaEmbed;
    default:
      return quire::Api::kChat;
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const std::vector<std::string> models = {"m"};
  const auto api = api_of(static_cast<char>(data[0]));
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const quire::ApiRequest request =
        quire::parse_api_request(api, body, {.models = models, .vocab_size = 100, .max_model_len = 2048});
    if (request.model != "m" && request.model != "m:latest") std::abort();
    if (!request.only_loads && request.prompts.empty() == request.chat.messages.empty()) std::abort();
  } catch (const quire::ApiError& e) {
    if (e.status != 400 && e.status != 404) std::abort();
    for (const auto shape : {quire::ErrorShape::kOpenAi, quire::ErrorShape::kAnthropic, quire::ErrorShape::kOllama}) {
      if (!quire::Json::parse(quire::error_body(e, shape)).contains("error")) std::abort();
    }
  }
  return 0;
}
