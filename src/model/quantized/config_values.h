// Values that several quantization methods have in config.json. All throw Error: the field, its value, what works.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"
#include "json/field.h"
#include "model/quantized/one_of.h"
#include "model/quantized/quantization.h"

namespace quire {

// "config.json: quantization_config.bits: 5 is not supported for gptq; use 2, 3, 4 or 8"
Error not_supported(const JsonField& field, std::string_view method, std::string_view what_works);

// One of these integers.
int read_choice(const JsonField& object, std::string_view key, std::string_view method,
                std::initializer_list<int> allowed);

// One of these words, in lower case; the first one if the key is missing.
std::string read_word(const JsonField& object, std::string_view key, std::string_view method,
                      std::initializer_list<std::string_view> allowed);

// The inputs under one scale: 16 or a multiple of 32. 0 for -1 and for a missing key: all.
int read_group_size(const JsonField& object, std::string_view key, std::string_view method);

// Two numbers, of outputs and inputs.
void read_block(const JsonField& field, std::string_view method, CodedScheme& to);

// Adds the scheme of all modules that have no other one.
void use_for_all(const CodedScheme& scheme, Quantization& to);

// Lists of modules that are not quantized are only checked for form: a module's tensors tell what it is.
void check_names(const JsonField& object, std::string_view key);

// The settings of one method each.
void read_compressed_config(const JsonField& config, Quantization& to);
void read_modelopt(const JsonField& config, Quantization& to);  // also hf_quant_config.json
void read_auto_round(const JsonField& config, Quantization& to);
void read_mlx(const JsonField& config, Quantization& to);
void read_torchao(const JsonField& config, Quantization& to);
void read_hqq(const JsonField& config, Quantization& to);
void read_quark(const JsonField& config, Quantization& to);

}  // namespace quire
