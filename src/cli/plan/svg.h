// A plan as a picture: the machine's roofline with the plan's steps on it, and a bar of the memory.
#pragma once

#include <string>

#include "cli/plan/report.h"

namespace quire {

// A complete SVG document of 900 by 560 pixels, in colours that light and dark backgrounds show. Names are escaped.
std::string plan_svg(const PlanReport& report);

// Writes the picture to the file of --svg. force: overwrite it. Throws Error.
void write_svg(const std::string& file, const std::string& svg, bool force);

}  // namespace quire
