// What operations run on: kernels, a team of threads, and the form that inputs of linears are rounded to.
#pragma once

#include "base/team.h"
#include "kernels/types.h"

namespace quire {

class Communicator;
struct KernelSet;  // kernels/kernels.h
class InputObserver;
class Tuning;

struct Compute {
  const KernelSet& kernels;
  Team& team;
  Activations activations;
  const Tuning* tuning = nullptr;     // the loops to use; nullptr: the kernel set's own
  InputObserver* observer = nullptr;  // sees the inputs of linears; nullptr: nobody does
  Communicator* ranks = nullptr;      // that share the work; nullptr: all of it is done here
};

}  // namespace quire
