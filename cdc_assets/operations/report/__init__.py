"""One static page about a feed: `collect.collect_report` reads its state, `page.render_page` makes the page."""
