// Packs a model's experts into a file, one after the other, so that loading needs no memory for all of them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/team.h"
#include "model/checkpoint.h"
#include "model/packing/expert_file.h"
#include "model/packing/load_meter.h"
#include "model/packing/pack_matrices.h"
#include "ops/backend.h"

namespace quire {

// The matrices of an expert. Their offsets are those in the expert's bytes, where they follow each other.
struct ExpertJob {
  std::vector<MatrixJob> matrices;
  size_t bytes = 0;
};

struct ExpertFileOptions {
  std::string pack_cache;  // a folder that keeps the file; empty: none
  size_t memory = 0;       // most bytes for packed experts at a time; at least one expert is packed whatever it is
  PackFile::Warn warn = {};
  OnLoad report = {};
};

// The file of these experts: that of the pack cache, or a new one. Without a pack cache, or if it cannot be written, the new
// file has no name, and lies next to the model, in $TMPDIR, /var/tmp or /tmp: in the first of them that is on a disk with
// room for it. Throws Error if there is none (kResource), or as pack_matrices() does.
ExpertFile make_expert_file(const Checkpoint& checkpoint, std::span<const ExpertJob> experts, Backend& backend,
                            Team& team, const ExpertFileOptions& options);

}  // namespace quire
