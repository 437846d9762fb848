// Writes a model as a Hugging Face directory whose linears are quantized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/team.h"
#include "format/partial_output.h"
#include "quantize/hf/layer_edits.h"
#include "quantize/hf/method.h"
#include "quantize/hf/source.h"

namespace quire {

// What becomes of a tensor.
struct HfTensorChange {
  size_t tensor = 0;              // of the source
  std::string module;             // empty: it stays a plain tensor
  std::vector<ModulePart> parts;  // of a module; else the tensor itself, under its name
  int rotated = 0;                // inputs of a block that are rotated at run time by Sylvester's matrix; 0: none are
  uint64_t bytes() const;
};

struct HfPlan {
  const HfMethod* method = nullptr;
  MethodSettings settings;
  std::vector<HfTensorChange> changes;     // of all tensors of the source, in its order
  std::vector<std::string> float_modules;  // linears that stay as they are
  std::vector<std::string> warnings;

  size_t quantized() const;  // modules
  uint64_t bytes() const;
};

// Decides everything without reading weights. chooses_group: settings.group is a default, which may become smaller so that
// it divides the inputs of all matrices. Embeddings, output matrices, routers and what is no linear stay as they are, and so
// do matrices that the method's layout cannot hold (a warning says so). rotates: the inputs of down projections are rotated
// at run time, in blocks of a power of two up to 1024, if the method rounds inputs and its layout can say so. Throws Error if nothing is left to
// quantize.
HfPlan plan_hf_model(const ModelSource& source, const HfMethod& method, MethodSettings settings, bool chooses_group,
                     bool rotates = false);

// What was lost in a matrix.
struct ModuleLoss {
  std::string module;
  double weights = 0;   // ||W - Q|| / ||W||
  double outputs = -1;  // the same of the outputs for the calibration text; below 0: unknown
};

struct WrittenModel {
  std::vector<ModuleLoss> losses;  // of all quantized matrices
  std::vector<std::string> notes;  // what the user should know
};

// Carries the plan out, tensor by tensor: memory for a few copies of the largest in float32, and for what is known of its
// inputs. `to` appears when it is whole (OutputFolder). inputs: may be null for methods that need none; asked for layers of
// tensors that are not taken over. progress: in tensors; it may throw to stop. partial: what an earlier call with the same
// source, plan and inputs has written is taken over, and if this one ends early, what it has written is kept there; null:
// nothing is kept. Throws Error: damaged weights or statistics, weights that the method cannot hold, a full disk.
WrittenModel write_hf_model(const ModelSource& source, const HfPlan& plan, const FindInputs& inputs,
                            const std::filesystem::path& to, bool replace, Team& team,
                            const std::function<void(size_t written, size_t total, const std::string& name)>& progress,
                            PartialOutput* partial = nullptr);

}  // namespace quire
