#include "server/api/fields.h"

namespace quire {
namespace {

constexpr uint8_t kCompletion = bits(Api::kCompletion), kResponse = bits(Api::kResponse),
                  kMessage = bits(Api::kMessage), kTokenize = bits(Api::kTokenize),
                  kCountTokens = bits(Api::kCountTokens), kMessageInput = kMessage | kCountTokens,
                  kGenerate = bits(Api::kChat) | kCompletion | kResponse | kMessage;

constexpr std::string_view kOwnTemplate = "start the server with --chat-template FILE";
constexpr std::string_view kTools = "tool calls are not supported yet",
                           kStructured = "structured output is not supported yet",
                           kNotStored = "nothing is stored; send the whole conversation as input";
constexpr RefusedField kRefused[] = {
    {"tools", kGenerate | kTokenize | kCountTokens, "[[]]", kTools},
    {"tool_choice", kGenerate | kCountTokens, R"(["none", {"type": "none"}])", kTools},
    {"functions", kGenerate, "[[]]", kTools},
    {"function_call", kGenerate, R"(["none"])", kTools},
    {"response_format", kGenerate, R"([{"type": "text"}])", kStructured},
    {"structured_outputs", kGenerate, "[{}]", kStructured},
    {"guided_json", kGenerate, "[]", kStructured},
    {"guided_regex", kGenerate, "[]", kStructured},
    {"guided_choice", kGenerate, "[]", kStructured},
    {"guided_grammar", kGenerate, "[]", kStructured},
    {"guided_decoding_backend", kGenerate, "[]", kStructured},
    {"guided_whitespace_pattern", kGenerate, "[]", kStructured},
    {"grammar", kGenerate, R"([""])", kStructured},
    {"json_schema", kGenerate, "[{}]", kStructured},
    {"suffix", kCompletion, R"([""])", "completions only append to the prompt"},
    {"prompt_embeds", kCompletion, "[]", "send text or token ids"},
    {"use_beam_search", kGenerate, "[false]", ""},
    {"logits_processors", kGenerate, "[[]]", ""},
    {"vllm_xargs", kGenerate, "[{}]", ""},
    {"chat_template", kGenerate | kTokenize | kCountTokens, R"([""])", kOwnTemplate},
    {"audio", kGenerate, "[]", "answers are text"},
    {"modalities", kGenerate, R"([["text"]])", "answers are text"},
    {"web_search_options", kGenerate, "[]", ""},
    {"mirostat", kGenerate, "[0]", ""},
    {"xtc_probability", kGenerate, "[0]", ""},
    {"dry_multiplier", kGenerate, "[0]", ""},
    {"dynatemp_range", kGenerate, "[0]", ""},
    {"top_n_sigma", kGenerate, "[-1, 0]", ""},
    {"top_a", kGenerate, "[0]", ""},
    {"tfs_z", kGenerate, "[1]", ""},
    {"samplers", kGenerate, "[]", "the order of samplers is fixed"},
    {"thinking", kGenerate & ~kMessage, R"([{"type": "disabled"}])", "set enable_thinking in chat_template_kwargs"},
    {"mcp_servers", kMessageInput, "[[]]", kTools},
    {"container", kMessage, "[]", kTools},
    {"background", kResponse, "[false]", "nothing is stored"},
    {"previous_response_id", kResponse, "[]", kNotStored},
    {"conversation", kResponse, "[]", kNotStored},
    {"max_tool_calls", kResponse, "[]", kTools},
};

}  // namespace

std::span<const RefusedField> refused_fields() { return kRefused; }

}  // namespace quire
