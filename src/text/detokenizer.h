// Turns token ids into text as they are generated, one at a time.
//
//   Detokenizer detokenizer(tokenizer);
//   for (TokenId id : answer) out << detokenizer.push(id);
//   out << detokenizer.finish();
#pragma once

#include <string>

#include "quire/types.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

// The joined pieces equal Tokenizer::decode of all ids. No piece ends inside a UTF-8 character: up to three bytes that
// may still become a character are held back; bytes that cannot become U+FFFD, one for each maximal ill-formed part.
// A value: copy it to try a draft and keep the old state. For one thread at a time.
class Detokenizer {
 public:
  explicit Detokenizer(Tokenizer tokenizer, DecodeOptions options = {})
      : tokenizer_(std::move(tokenizer)), options_(options) {}

  std::string push(TokenId id);             // the text that is now final; may be empty
  void push(TokenId id, std::string& out);  // the same, appended
  std::string finish();                     // the held-back rest, made well-formed; then ready for a new text

 private:
  void put(std::string_view bytes, std::string& out);
  void put_framed(TokenId id, std::string& out);

  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::string held_;      // an incomplete UTF-8 character
  bool started_ = false;  // a token has been decoded
  int stripped_ = 0;      // leading characters removed so far
};

}  // namespace quire
