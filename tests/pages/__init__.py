"""The pages of the trackers as a person sees them: real trainings, a real browser, a real terminal."""
