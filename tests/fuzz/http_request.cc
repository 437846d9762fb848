// links: server
// Any bytes as a request's body give a request or an ApiError with a JSON body. The first byte chooses the endpoint.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "server/api/error.h"
#include "server/api/request/request.h"
#include "server/api/routes.h"

static std::string_view path_of(char letter) {
  switch (letter) {
    case 'c':
      return "/v1/completions";
    case 'r':
      return "/v1/responses";
    case 'a':
      return "/v1/messages";
    case 'e':
      return "/v1/embeddings";
    case 't':
      return "/tokenize";
    case 'd':
      return "/detokenize";
    case 'i':
      return "/infill";
    case 'l':
      return "/completion";
    case 'o':
      return "/api/chat";
    case 'g':
      return "/api/generate";
    case 'b':
      return "/api/embed";
    default:
      return "/v1/chat/completions";
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const std::vector<std::string> models = {"m"};
  const quire::ApiDefinition& api = *quire::find_api(path_of(static_cast<char>(data[0])));
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
