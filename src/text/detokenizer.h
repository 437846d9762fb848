// Token ids to text as they are generated, one at a time.
//
//   Detokenizer detokenizer(tokenizer);
//   for (TokenId id : answer) out << detokenizer.push(id);
//   out << detokenizer.finish();
#pragma once

#include <string>

#include "quire/types.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

// The pieces joined are Tokenizer::decode of all the ids. No piece ends inside a UTF-8 character: bytes that may still
// become one are held back (at most three); bytes that no longer can become U+FFFD, one for each maximal ill-formed
// part. A value: copy it to try a draft and keep the old state. One thread at a time.
class Detokenizer {
 public:
  explicit Detokenizer(Tokenizer tokenizer, DecodeOptions options = {})
      : tokenizer_(std::move(tokenizer)), options_(options) {}

  std::string push(TokenId id);             // the text that is certain now; may be empty
  void push(TokenId id, std::string& out);  // the same, appended
  std::string finish();                     // what was held back, made well-formed; ready for a new text

 private:
  void put(std::string_view bytes, std::string& out);

  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::string held_;      // an incomplete UTF-8 character
  bool started_ = false;  // some token was decoded
  int stripped_ = 0;      // leading characters taken off so far
};

}  // namespace quire
