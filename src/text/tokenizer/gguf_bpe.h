// The BPE models of GGUF vocabularies, from tokens that TokenizerData already holds.
#pragma once

#include "text/tokenizer/data.h"
#include "text/tokenizer/pretokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // ▁

// SentencePiece's BPE by scores; `space_prefix`: a text starts with a space.
void build_sentence_piece(const GgufVocabulary& from, bool space_prefix, TokenizerData& data);

// BPE by merges, over bytes or over text as `pre` says; `whole_line_breaks`: a run of line breaks that is a token becomes
// that token. Throws Error (kInvalid) if there are no merges.
void build_byte_pair(const GgufVocabulary& from, GgufPreTokenizer pre, bool whole_line_breaks, TokenizerData& data);

}  // namespace quire
