// The components of a tokenizer.json before and after the model. Each reader throws Error naming the field: kInvalid if it is
// broken, kUnsupported if Quire lacks the component.
#pragma once

#include "json/field.h"
#include "text/detokenizer_steps.h"
#include "text/normalizer.h"
#include "text/tokenizer/pretokenizer.h"

namespace quire {

// A string of base64, as bytes.
std::string decode_base64(const JsonField& field);
Normalizer read_hf_normalizer(const JsonField& field);

// A ByteLevel component becomes a ToAlphabet step.
PreTokenizer read_hf_pretokenizer(const JsonField& field);

DecodeRules read_hf_decoder(const JsonField& field);

}  // namespace quire
