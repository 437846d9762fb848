// Readers of the parameters that are more than a number or a switch; the table in fields.cc names them.
#pragma once

#include <limits>

#include "server/api/request/fields.h"

namespace quire {

inline constexpr int kIntMax = std::numeric_limits<int>::max();

// Tells the chat template whether to think, under both names that templates have for it; chat_template_kwargs wins.
void set_thinking(ApiDraft& draft, bool think);
void set_effort(ApiDraft& draft, const std::string& effort);

// Whether requests may have this name of a model.
bool is_served(const ApiLimits& limits, std::string_view name);

void read_model(ApiDraft& draft, const JsonField& field);
void read_max_tokens(ApiDraft& draft, const JsonField& field);
void read_max_answer_tokens(ApiDraft& draft, const JsonField& field);
void read_max_output_tokens(ApiDraft& draft, const JsonField& field);
void read_max_completion_tokens(ApiDraft& draft, const JsonField& field);
void read_seed(ApiDraft& draft, const JsonField& field);
void read_stop(ApiDraft& draft, const JsonField& field);
void read_stop_token_ids(ApiDraft& draft, const JsonField& field);
void read_allowed_token_ids(ApiDraft& draft, const JsonField& field);
void read_bad_words(ApiDraft& draft, const JsonField& field);
void read_breakers(ApiDraft& draft, const JsonField& field);
void read_logit_bias(ApiDraft& draft, const JsonField& field);
void read_logprobs(ApiDraft& draft, const JsonField& field);  // the switch
void read_store(ApiDraft& draft, const JsonField& field);
void read_top_logprobs(ApiDraft& draft, const JsonField& field);
void read_best_of(ApiDraft& draft, const JsonField& field);
void read_stream_options(ApiDraft& draft, const JsonField& field);
void read_add_generation_prompt(ApiDraft& draft, const JsonField& field);
void read_continue_final_message(ApiDraft& draft, const JsonField& field);
void read_template_kwargs(ApiDraft& draft, const JsonField& field);
void read_reasoning_effort(ApiDraft& draft, const JsonField& field);
void read_max_reasoning_tokens(ApiDraft& draft, const JsonField& field);
void read_enable_thinking(ApiDraft& draft, const JsonField& field);
void read_verbosity(ApiDraft& draft, const JsonField& field);
void read_parse_special(ApiDraft& draft, const JsonField& field);
void read_documents(ApiDraft& draft, const JsonField& field);
void read_truncate_prompt_tokens(ApiDraft& draft, const JsonField& field);
void read_prompt_logprobs(ApiDraft& draft, const JsonField& field);
void read_cache_salt(ApiDraft& draft, const JsonField& field);
void read_timeout(ApiDraft& draft, const JsonField& field);
void read_instructions(ApiDraft& draft, const JsonField& field);
void read_tokens(ApiDraft& draft, const JsonField& field);
void read_pooling(ApiDraft& draft, const JsonField& field);
void read_query(ApiDraft& draft, const JsonField& field);
void read_queries(ApiDraft& draft, const JsonField& field);
void read_scored_documents(ApiDraft& draft, const JsonField& field);
void read_top_n(ApiDraft& draft, const JsonField& field);
void read_encoding_format(ApiDraft& draft, const JsonField& field);
void read_dimensions(ApiDraft& draft, const JsonField& field);

}  // namespace quire
