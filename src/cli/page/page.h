// The page that shows a run: one HTML file with everything in it, which needs no network.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/observe/run_record.h"

namespace lockstep::cli {

// What the page shows of a run: the record as it is in its file, and whether the run seems to have been
// killed.
Json shown_json(const observe::RunRecord& record);

// What a page is about: a run, what `lockstep scale` measured, what `lockstep plan` forecasts; null: nothing
// of it.
struct PageParts {
  std::optional<observe::RunRecord> record = {};
  Json scale = {}, plan = {};
};
std::string page(const PageParts& parts);
// The same, for a server: it asks for record.json beside it every other second, and draws that.
std::string live_page();

// The files it is made of, as they were when the tool was built.
namespace page_files {
extern const std::string_view page_html, page_css, chart_licence_txt, chart_min_js;
extern const std::string_view text_js, plots_js, headline_js, curves_js, time_js, timeline_js, input_js,
    memory_js, kernels_js, scaling_js, page_js;
}  // namespace page_files

}  // namespace lockstep::cli
