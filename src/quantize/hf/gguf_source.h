// A GGUF file as the tensors and files of a Hugging Face directory.
#pragma once

#include "model/checkpoint.h"
#include "quantize/hf/source.h"

namespace quire {

// Dense models of the architectures llama, qwen2 and qwen3. Names, the order of rotated rows and config.json are those of
// Hugging Face's libraries; blocks become float16. tokenizer.json is written for byte-level BPE whose pre-tokenizer is known,
// and only if it splits ordinary texts as the file's vocabulary does; source.warnings say what is missing. checkpoint: must
// outlive the result. Throws Error for other models, and for settings that config.json would lose.
ModelSource open_gguf_source(const Checkpoint& checkpoint);

}  // namespace quire
