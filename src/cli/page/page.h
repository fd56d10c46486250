// The page that shows a run: one HTML file with everything in it, which needs no network.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/observe/run_record.h"

namespace lockstep::cli {

// What the page shows: the record as it is in its file, and whether the run seems to have been killed.
std::string shown_json(const observe::RunRecord& record);

// The page with this record in it.
std::string page(const observe::RunRecord& record);
// The same, for a server: it asks for record.json beside it every other second, and draws that.
std::string live_page();

// The files it is made of, as they were when the tool was built.
namespace page_files {
extern const std::string_view page_html, page_css, chart_licence_txt, chart_min_js;
extern const std::string_view text_js, plots_js, headline_js, curves_js, time_js, timeline_js, input_js,
    memory_js, kernels_js, page_js;
}  // namespace page_files

}  // namespace lockstep::cli
